-- Adds a job that must not run before a given time to the delayed jobs.
-- KEYS: the delayed jobs, the job's hash. ARGV: id, lane, when it is due (Unix ms), the packed Celery message,
--   the model whose lane it is (or nothing).
-- Returns 1, or 0 if the queue knows the job already: a repeated message adds no second job.
-- A job that was cancelled before it came is due at once, to be settled.
-- Only workers put jobs into the quarantine.
if (':' .. ARGV[2]):find(':quarantine:', 1, true) then return redis.error_reply('ERR lane ' .. ARGV[2] .. ' is reserved') end
local had = redis.call('HMGET', KEYS[2], 'state', 'cancel')
if had[1] then return 0 end
local time = redis.call('TIME')
redis.call('HSET', KEYS[2], 'state', 'delayed', 'lane', ARGV[2], 'seq', 0,
  'queued_at', time[1] * 1000 + math.floor(time[2] / 1000),
  'parked', cmsgpack.pack({'id', ARGV[1], 'm', ARGV[4]}))
if ARGV[5] ~= '' then redis.call('HSET', KEYS[2], 'model', ARGV[5]) end
-- a cancel flag set before the job exists has a time to live, which would delete the job too
redis.call('PERSIST', KEYS[2])
redis.call('ZADD', KEYS[1], had[2] and 0 or ARGV[3], ARGV[1])
return 1
