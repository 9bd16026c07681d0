-- Loaded before `append`, `settle` and `extend`: whether a delivery still belongs to this worker. It fences off late
-- writes: nothing is written for a delivery that another worker owns by now.

-- Returns 'owner'; 'done' when this very delivery has been settled; nil when the job is another's.
-- A job of which Redis knows nothing (it was emptied) has no other owner: its answer is still worth keeping.
local function ownership(had, attempt, entry)
  if not had.state then return 'owner' end
  if had.worker ~= worker or had.attempt and had.attempt ~= attempt or had.entry and had.entry ~= entry then return nil end
  if TERMINAL[had.state] or had.state == 'queued' or had.state == 'delayed' then return 'done' end
  return 'owner'
end
