-- Loaded before `append`, `settle` and `extend`: checks that a delivery still belongs to this worker. This fences off late
-- writes: nothing is written for a delivery that another worker owns.

-- Returns 'owner'; 'done' if this very delivery has been settled; nil if another worker owns the job.
-- A job that Redis does not know (because it was emptied) has no other owner, and its answer is worth keeping.
local function ownership(had, attempt, entry)
  if not had.state then return 'owner' end
  if had.worker ~= worker or had.attempt and had.attempt ~= attempt or had.entry and had.entry ~= entry then return nil end
  if TERMINAL[had.state] or had.state == 'queued' or had.state == 'delayed' then return 'done' end
  return 'owner'
end
