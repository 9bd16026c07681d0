-- Counts one request against the limits of a tenant, or against none if one of them is reached.
-- A rate is a generic cell rate: its key holds the time at which its bucket will be full again.
-- Requests in progress are a JSON object in one key: each name with the time after which it no longer counts.
-- KEYS: the requests in progress, then one for each rate. All in microseconds by the clock of Redis.
-- ARGV: the request's name, most requests in progress (0: no limit), how long a request counts; then for each rate the
--       time that one unit takes to come back, the time that a whole bucket takes, and the units to take.
-- Returns the time to wait (0: taken), then for each rate its remaining units and the time until it is full.
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local name, most, lease = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])

local function rate(i) return tonumber(ARGV[3 * i + 1]), tonumber(ARGV[3 * i + 2]), tonumber(ARGV[3 * i + 3]) end

local wait, full = 0, {}
for i = 1, #KEYS - 1 do
  local unit, bucket, cost = rate(i)
  full[i] = math.max(now, tonumber(redis.call('GET', KEYS[i + 1]) or now))
  wait = math.max(wait, full[i] + unit * math.max(cost, 1) - now - bucket)
end

local running, count, next_end = {}, 0, now + lease
if most > 0 then
  for other, ends in pairs(cjson.decode(redis.call('GET', KEYS[1]) or '{}')) do
    if ends > now and other ~= name then
      running[other], count, next_end = ends, count + 1, math.min(next_end, ends)
    end
  end
  if count >= most then wait = math.max(wait, math.min(next_end - now, 1000000)) end
end

local told = {math.ceil(wait)}
for i = 1, #KEYS - 1 do
  local unit, bucket, cost = rate(i)
  if wait <= 0 and cost > 0 then
    full[i] = full[i] + unit * cost
    redis.call('SET', KEYS[i + 1], string.format('%.0f', full[i]), 'PX', math.ceil((full[i] - now) / 1000))
  end
  told[#told + 1] = math.max(0, math.floor((bucket - full[i] + now) / unit))
  told[#told + 1] = math.ceil(full[i] - now)
end
if wait <= 0 and most > 0 then
  running[name] = now + lease
  redis.call('SET', KEYS[1], cjson.encode(running), 'PX', math.ceil(lease / 1000))
end
return told
