-- Reads how many events each job has had. KEYS: the hashes of jobs, which others may have written to.
-- Returns for each job the number, or nil for a job that is not known.
local found = {}
for i, hash in ipairs(KEYS) do
  local count = redis.pcall('HGET', hash, 'seq')
  found[i] = type(count) == 'string' and count or false
end
return found
