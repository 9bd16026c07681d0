-- Removes ended jobs of one partition.
-- KEYS: for each job its hash, its result and its log.
-- Keys expire at once instead of being deleted, because a client's user may not delete anything.
for i = 1, #KEYS, 3 do
  local state = redis.call('HGET', KEYS[i], 'state')
  if state == 'completed' or state == 'failed' or state == 'cancelled' or state == 'expired' then
    for place = i, i + 2 do redis.call('PEXPIRE', KEYS[place], 0) end
  end
end
