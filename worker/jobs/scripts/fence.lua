-- Loaded before `append` and `settle`: who may write for a job, and how an event is told.
-- ARGV goes on with: log_ttl (ms), log_length.
local log_ttl, log_length = ARGV[4], ARGV[5]

-- Logs and publishes one event, once: a number already told belongs to a call whose reply was lost.
local function tell(key, log, channel, seq, event)
  if seq < tonumber(redis.call('HGET', key, 'seq') or 0) then return end
  redis.call('XADD', log, 'MAXLEN', '~', log_length, string.format('%d-0', seq + 1), 'e', event)
  redis.call('HSET', key, 'seq', seq + 1)
  redis.call('PUBLISH', channel, event)
end
