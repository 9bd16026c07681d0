-- Loaded before `append` and `settle`: who may write for a job, and how an event is told.
local worker, log_ttl, log_length = ARGV[1], ARGV[2], ARGV[3]

-- The fence. Returns 'owner'; 'done' when this very delivery has been settled; nil when the job is another's.
-- A job of which Redis knows nothing (it was emptied) has no other owner: its answer is still worth keeping.
local function standing(key, attempt, entry)
  local had = redis.call('HMGET', key, 'state', 'worker', 'attempt', 'entry')
  if not had[1] then return 'owner' end
  if had[2] ~= worker or had[3] ~= attempt or had[4] ~= entry then return nil end
  if had[1] == 'running' then return 'owner' end
  return 'done'
end

-- Logs and publishes one event, once: a number already told belongs to a call whose reply was lost.
local function tell(key, log, channel, seq, event)
  if seq < tonumber(redis.call('HGET', key, 'seq') or 0) then return end
  redis.call('XADD', log, 'MAXLEN', '~', log_length, string.format('%d-0', seq + 1), 'e', event)
  redis.call('HSET', key, 'seq', seq + 1)
  redis.call('PUBLISH', channel, event)
end
