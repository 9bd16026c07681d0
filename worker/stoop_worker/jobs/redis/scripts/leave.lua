-- Gives up the lease of one worker in one partition.
-- KEYS: its live key, the registry of workers, the workers in the quarantine, then the lanes' streams.
-- A consumer is removed only if it holds nothing, because its entries would be lost with it.
redis.call('DEL', KEYS[1])
on_inner('HDEL', KEYS[2], worker)
on_inner('ZREM', KEYS[3], worker)
for i = 4, #KEYS do
  local pending = redis.pcall('XPENDING', KEYS[i], group, '-', '+', 1, worker)
  if not pending.err and #pending == 0 then redis.call('XGROUP', 'DELCONSUMER', KEYS[i], group, worker) end
end
return 1
