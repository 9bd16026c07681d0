-- Renews one worker's lease in one partition, and checks the jobs that it holds there.
-- KEYS: its live key, the registry of workers, then for each delivery its job's hash.
-- ARGV after the prelude's: lease (ms), the worker's record (JSON, or nothing), then for each delivery: attempt, entry.
-- Returns now, then for each delivery 1; 2 when it was cancelled; 0 when this worker no longer owns it.
redis.call('SET', KEYS[1], '1', 'PX', ARGV[4])
if ARGV[5] ~= '' then on_inner('HSET', KEYS[2], worker, ARGV[5]) end
local found = {now}
for i = 3, #KEYS do
  local had = look_up(KEYS[i])
  local whose = ownership(had, ARGV[2 * i], ARGV[2 * i + 1])
  -- a job that is done was settled by a call whose reply is on its way
  found[#found + 1] = not whose and 0 or whose == 'owner' and had.cancel and 2 or 1
end
return found
