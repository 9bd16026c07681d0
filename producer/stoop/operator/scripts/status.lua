-- Counts the jobs of one partition. It only reads, and its cost does not grow with the depth.
-- KEYS: delayed, dead letters, paused lanes, workers, totals, the two quarantines, then for each lane its stream and its
--   tenants. ARGV: group, then the lanes' names.
-- Returns {now (ms), delayed, dead, workers, {totals: field, value...}, small, alone, {{waiting, in flight, when the
--   oldest waiting entry was put there (ms, 0: none), paused (1)} a lane}}. A lane's counts include its tenants' jobs.
local group, most_tenants = ARGV[1], 1000
local time = redis.call('TIME')

local function facts(stream)
  local groups = redis.pcall('XINFO', 'GROUPS', stream)
  for _, reply in ipairs(groups.err and {} or groups) do
    local known = {}
    for i = 1, #reply, 2 do known[reply[i]] = reply[i + 1] end
    if known.name == group then return known end
  end
  return {pending = 0, ['last-delivered-id'] = '0-0'}
end

-- Returns how many entries were given back (they are pending in the name of `-`), and the id of the first.
local function given_back(stream)
  for _, holder in ipairs(redis.call('XPENDING', stream, group)[4] or {}) do
    if holder[1] == '-' then
      return tonumber(holder[2]), redis.call('XPENDING', stream, group, '-', '+', 1, '-')[1][1]
    end
  end
  return 0
end

-- Adds the counts of one stream: waiting, in flight, and the time of the oldest waiting job.
local function add(sum, stream)
  local known = facts(stream)
  local back, first = 0, nil
  if known.pending > 0 then back, first = given_back(stream) end
  known.pending = known.pending - back
  local waiting = redis.call('XLEN', stream) - known.pending
  local oldest = redis.call('XRANGE', stream, '(' .. known['last-delivered-id'], '+', 'COUNT', 1)[1]
  first = first or oldest and oldest[1]
  local at = first and tonumber(first:match('^%d+')) or 0
  sum[1], sum[2] = sum[1] + waiting, sum[2] + known.pending
  if at > 0 and (sum[3] == 0 or at < sum[3]) then sum[3] = at end
end

local function lane(stream, tenants, name)
  local sum = {0, 0, 0, redis.call('SISMEMBER', KEYS[3], name)}
  add(sum, stream)
  for _, tenant in ipairs(redis.call('ZRANGE', tenants, 0, most_tenants - 1)) do
    -- the empty one stands for jobs without a tenant, which are in the lane's own stream
    if tenant ~= '' then add(sum, stream .. '/' .. tenant) end
  end
  return sum
end

local lanes = {}
for i = 2, #ARGV do lanes[#lanes + 1] = lane(KEYS[2 * i + 4], KEYS[2 * i + 5], ARGV[i]) end
return {
  time[1] * 1000 + math.floor(time[2] / 1000), redis.call('ZCARD', KEYS[1]), redis.call('XLEN', KEYS[2]),
  redis.call('HLEN', KEYS[4]), redis.call('HGETALL', KEYS[5]), redis.call('XLEN', KEYS[6]),
  redis.call('XLEN', KEYS[7]), lanes,
}
