-- Cancels one job.
-- KEYS: the job's hash, the delayed jobs, the bell that wakes idle workers, the cancelled jobs that wait.
-- ARGV: id, channel of the workers, message for them, flag_ttl (ms).
-- Returns the state the job was in, or false if Redis does not know it.
-- A queued job is the next that a worker claims, to settle it; a delayed one becomes due at once for that; for a running one
-- the message is sent on the channel. A job of a bare XADD has no hash before its claim: the flag waits for it, for a while.
local job, delayed = KEYS[1], KEYS[2]
local state = redis.call('HGET', job, 'state')
if state == 'completed' or state == 'failed' or state == 'cancelled' or state == 'expired' then return state end
redis.call('HSET', job, 'cancel', '1')
if not state then
  redis.call('PEXPIRE', job, ARGV[4])
elseif state == 'queued' or state == 'delayed' then
  if state == 'queued' then redis.call('ZADD', KEYS[4], 0, ARGV[1]) else redis.call('ZADD', delayed, 'XX', 0, ARGV[1]) end
  redis.call('XADD', KEYS[3], 'MAXLEN', 1, '*', 'r', 1)
elseif state == 'running' then
  redis.call('PUBLISH', ARGV[2], ARGV[3])
end
return state
