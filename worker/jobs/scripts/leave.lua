-- Gives the lease of one worker back in one partition.
-- KEYS: its live key, then the lanes' streams. ARGV: group, worker.
-- A consumer is removed only when it holds nothing: removing it would lose what it holds.
redis.call('DEL', KEYS[1])
for i = 2, #KEYS do
  local pending = redis.pcall('XPENDING', KEYS[i], ARGV[1], '-', '+', 1, ARGV[2])
  if not pending.err and #pending == 0 then redis.call('XGROUP', 'DELCONSUMER', KEYS[i], ARGV[1], ARGV[2]) end
end
return 1
