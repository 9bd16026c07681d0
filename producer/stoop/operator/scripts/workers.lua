-- Lists the workers of one partition, and forgets those whose lease has run out.
-- KEYS: the registry. ARGV: the beginning of the names of the workers' live keys.
-- Returns worker, facts, worker, facts...
local living = {}
local known = redis.call('HGETALL', KEYS[1])
for i = 1, #known, 2 do
  if redis.call('EXISTS', ARGV[1] .. known[i]) == 1 then
    living[#living + 1] = known[i]
    living[#living + 1] = known[i + 1]
  else
    redis.call('HDEL', KEYS[1], known[i])
  end
end
return living
