-- Puts a job that is not to run before its time among the delayed ones.
-- KEYS: the delayed jobs, the job's hash. ARGV: id, lane, when it is due (Unix ms), the packed Celery message.
-- Returns 1, or 0 if the queue knows the job already: a message that is sent again is there once.
if redis.call('HGET', KEYS[2], 'state') then return 0 end
local time = redis.call('TIME')
redis.call('HSET', KEYS[2], 'state', 'delayed', 'lane', ARGV[2], 'seq', 0,
  'queued_at', time[1] * 1000 + math.floor(time[2] / 1000),
  'parked', cmsgpack.pack({'id', ARGV[1], 'm', ARGV[4]}))
redis.call('ZADD', KEYS[1], ARGV[3], ARGV[1])
return 1
