-- Ends a request: it is no longer in progress, and the units that it used are taken from a rate, which may go into debt.
-- KEYS: the requests in progress, the rate. ARGV: the request's name, the time in microseconds that one unit takes to
-- come back, and the units used.
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local held = redis.call('GET', KEYS[1])
if held then
  local running = cjson.decode(held)
  running[ARGV[1]] = nil
  local last = 0
  for _, ends in pairs(running) do last = math.max(last, ends) end
  if last > now then
    redis.call('SET', KEYS[1], cjson.encode(running), 'PX', math.ceil((last - now) / 1000))
  else
    redis.call('SET', KEYS[1], '{}', 'PX', 1)
  end
end
if tonumber(ARGV[3]) > 0 then
  local full = math.max(now, tonumber(redis.call('GET', KEYS[2]) or now)) + ARGV[2] * ARGV[3]
  redis.call('SET', KEYS[2], string.format('%.0f', full), 'PX', math.ceil((full - now) / 1000))
end
return 1
