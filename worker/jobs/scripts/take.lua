-- Claims at most `permits` jobs of one partition, from the first lane to the last, the last with a minimum share.
-- KEYS: the lanes' streams in order, then the sorted set of delayed jobs.
-- ARGV: stem, partition, group, worker, permits, share, whether the reply of an earlier take was lost ('1'), and then
--   what this worker knows that it holds, each as `lane entry`.
-- Returns {now, when the next delayed job is due (0: none), {each lane's last claimed id}, {deliveries}}.
local permits, share, reply_lost = tonumber(ARGV[5]), tonumber(ARGV[6]), ARGV[7] == '1'
local lanes, delayed = #KEYS - 1, KEYS[#KEYS]
local time = redis.call('TIME')
now = time[1] * 1000 + math.floor(time[2] / 1000)
local found, count = {}, 0

local function name(stream) return stream:sub(#stem + #'jobs:' + 1) end

local function keep(lane, delivery)
  if delivery then
    found[lane][#found[lane] + 1] = delivery
    count = count + 1
  end
end

-- Redis forgets a group with its stream; what was put there since is all there is, so the new group starts at 0.
local function unclaimed(stream, most)
  local reply = redis.pcall('XREADGROUP', 'GROUP', group, worker, 'COUNT', most, 'STREAMS', stream, '>')
  if reply and reply.err then
    if reply.err:find('NOGROUP', 1, true) then
      redis.call('XGROUP', 'CREATE', stream, group, '0', 'MKSTREAM')
    end
    reply = redis.call('XREADGROUP', 'GROUP', group, worker, 'COUNT', most, 'STREAMS', stream, '>')
  end
  return reply and reply[1][2] or {}
end

-- Duplicates free their permit, so read on; a few rounds only, that a lane full of them blocks nobody.
local function fill(lane, most)
  for _ = 1, 4 do
    local room = most - #found[lane]
    if room <= 0 then return end
    local entries = unclaimed(KEYS[lane], room)
    for _, entry in ipairs(entries) do
      keep(lane, claim(name(KEYS[lane]), KEYS[lane], entry[1], entry[2]))
    end
    if #entries < room then return end
  end
end

local function promote_due()
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', delayed, '-inf', now, 'LIMIT', 0, permits)) do
    local key = stem .. 'job:' .. id
    local job = redis.call('HMGET', key, 'lane', 'parked')
    redis.call('ZREM', delayed, id)
    if job[2] then
      local entry = redis.call('XADD', stem .. 'jobs:' .. job[1], '*', unpack(cmsgpack.unpack(job[2])))
      redis.call('HSET', key, 'state', 'queued', 'entry', entry)
      redis.call('HDEL', key, 'parked')
    end
  end
end

-- Claims whose reply never arrived: pending for this worker, which knows nothing of them.
local function find_again(lane, held)
  local stream = KEYS[lane]
  local pending = redis.pcall('XPENDING', stream, group, '-', '+', 10000, worker)
  if pending.err then return end -- no group, so nothing is pending
  for _, claimed in ipairs(pending) do
    if count >= permits then return end
    if not held[name(stream) .. ' ' .. claimed[1]] then
      local entry = redis.call('XRANGE', stream, claimed[1], claimed[1])[1]
      if entry then
        keep(lane, claim(name(stream), stream, entry[1], entry[2]))
      else
        redis.call('XACK', stream, group, claimed[1])
      end
    end
  end
end

for lane = 1, lanes do found[lane] = {} end
promote_due()
if reply_lost then
  local held = {}
  for i = 8, #ARGV do held[ARGV[i]] = true end
  for lane = 1, lanes do find_again(lane, held) end
end
fill(lanes, math.min(share, permits - count))
for lane = 1, lanes do fill(lane, #found[lane] + permits - count) end

local ends, deliveries = {}, {}
for lane = 1, lanes do
  local groups = redis.pcall('XINFO', 'GROUPS', KEYS[lane])
  ends[lane] = '0-0'
  for _, facts in ipairs(groups) do
    if field(facts, 'name') == group then ends[lane] = field(facts, 'last-delivered-id') end
  end
  for _, delivery in ipairs(found[lane]) do deliveries[#deliveries + 1] = delivery end
end
local first = redis.call('ZRANGE', delayed, 0, 0, 'WITHSCORES')
return {now, first[2] and tonumber(first[2]) or 0, ends, deliveries}
