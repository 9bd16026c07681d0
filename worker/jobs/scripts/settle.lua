-- Ends many deliveries of one partition: answer stored, last event told, entry acknowledged, all or nothing for each.
-- KEYS: the dead letters, the delayed jobs, then for each delivery: lane, hash, log, result.
-- ARGV: worker, log_ttl (ms), log_length, group, result_ttl (ms), then for each delivery: id, attempt, entry, channel,
--   way ('end', 'dead', 'retry' or 'release'), state, number of the last event, the event, the result, and for
--   'dead' the failure, for 'retry' the delay (ms).
-- Returns for each delivery 1; 2 when it had been settled before; 0 when this worker does not own it.
local group, result_ttl, each = ARGV[4], ARGV[5], 10
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

-- The entry's fields with `id`, which it must carry where its own place in the stream no longer says it.
local function copied(lane, entry, id)
  local found = redis.call('XRANGE', lane, entry, entry)[1]
  if not found then return nil end
  local fields = {'id', id}
  for i = 1, #found[2], 2 do
    if found[2][i] ~= 'id' then
      fields[#fields + 1] = found[2][i]
      fields[#fields + 1] = found[2][i + 1]
    end
  end
  return fields
end

local function finish(keys, job)
  redis.call('SET', keys.result, job.result, 'PX', result_ttl)
  tell(keys.hash, keys.log, job.channel, job.seq, job.event)
  redis.call('HSET', keys.hash, 'state', job.state, 'worker', worker, 'attempt', job.attempt, 'entry', job.entry,
    'finished_at', now)
  redis.call('PEXPIRE', keys.hash, result_ttl)
  redis.call('PEXPIRE', keys.log, log_ttl)
  return true
end

local ways = {['end'] = finish}

function ways.dead(keys, job)
  local fields = copied(keys.lane, job.entry, job.id) or {'id', job.id}
  for _, value in ipairs({'lane', keys.lane:match('jobs:(.+)$'), 'attempt', job.attempt, 'worker', worker, 'failure', job.extra}) do
    fields[#fields + 1] = value
  end
  redis.call('XADD', KEYS[1], '*', unpack(fields))
  return finish(keys, job)
end

-- What is to run again cannot if its entry is gone, as when Redis was emptied: then nothing is done.
function ways.retry(keys, job)
  local fields = copied(keys.lane, job.entry, job.id)
  if not fields then return false end
  redis.call('HSET', keys.hash, 'state', 'delayed', 'parked', cmsgpack.pack(fields))
  redis.call('ZADD', KEYS[2], now + tonumber(job.extra), job.id)
  return true
end

function ways.release(keys, job)
  local fields = copied(keys.lane, job.entry, job.id)
  if not fields then return false end
  local entry = redis.call('XADD', keys.lane, '*', unpack(fields))
  redis.call('HSET', keys.hash, 'state', 'queued', 'entry', entry, 'attempt', tonumber(job.attempt) - 1)
  return true
end

local settled = {}
for i = 1, (#KEYS - 2) / 4 do
  local k, a = 3 + 4 * (i - 1), 6 + each * (i - 1)
  local keys = {lane = KEYS[k], hash = KEYS[k + 1], log = KEYS[k + 2], result = KEYS[k + 3]}
  local job = {id = ARGV[a], attempt = ARGV[a + 1], entry = ARGV[a + 2], channel = ARGV[a + 3], state = ARGV[a + 5],
    seq = tonumber(ARGV[a + 6]), event = ARGV[a + 7], result = ARGV[a + 8], extra = ARGV[a + 9]}
  local whose = standing(keys.hash, job.attempt, job.entry)
  settled[i] = whose == 'done' and 2 or 0
  if whose == 'owner' and ways[ARGV[a + 4]](keys, job) then
    redis.call('XACK', keys.lane, group, job.entry)
    redis.call('XDEL', keys.lane, job.entry)
    settled[i] = 1
  end
end
return settled
