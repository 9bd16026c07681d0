-- Takes jobs away from workers whose lease has run out, at most `most` a call.
-- KEYS: the lanes' streams. ARGV after those of the prelude and of `entries`: most.
-- Returns how many entries were handled; if that is `most`, there may be more.
-- Only the entries of dead workers are read, so the cost does not grow with the depth of a lane or with the jobs of live
-- workers. Handled entries no longer belong to a dead worker, so the next call continues where this one stopped.
local most, handled = tonumber(ARGV[5]), 0

-- Returns the stream of a lane, then those of its tenants.
local function parts(stream)
  local all = {stream}
  for _, tenant in ipairs(on_shared({}, 'ZRANGE', stem .. 'tenants:' .. stream:sub(#stem + #'jobs:' + 1), 0, -1)) do
    if tenant ~= '' then all[#all + 1] = stream .. '/' .. tenant end
  end
  return all
end

-- Returns the dead workers that a stream's group knows.
local function dead_consumers(stream)
  local dead = {}
  local consumers = redis.pcall('XINFO', 'CONSUMERS', stream, group)
  for _, facts in ipairs(consumers.err and {} or consumers) do
    local name = field(facts, 'name')
    if name ~= worker and name ~= GIVEN_BACK and not lives(name) then dead[#dead + 1] = name end
  end
  return dead
end

-- Returns whether this worker, or another live one, runs this job now.
local function is_run_by_a_living_worker(had)
  if had.state ~= 'running' or not had.worker or had.worker == GIVEN_BACK then return false end
  return had.worker == worker or lives(had.worker)
end

-- Takes one entry over. Only the hash shows who owns the job, not the pending entry.
local function take_away(stream, entry)
  local lane = stream:sub(#stem + #'jobs:' + 1)
  local found = entry_at(stream, entry)
  if not found then return redis.call('XACK', stream, group, entry) end
  local id = read(lane, entry, found[2])
  local key = stem .. 'job:' .. id
  local had = look_up(key)
  if is_duplicate(had, lane, entry) then return remove(stream, entry) end
  if is_run_by_a_living_worker(had) then return redis.call('XCLAIM', stream, group, had.worker, 0, entry, 'JUSTID') end
  had.lane, had.model = had.lane or lane, model
  crashed(key, had, true)
  put_back(key, had, stream, entry, with_id(found[2], id))
end

for _, lane in ipairs(KEYS) do
  for _, stream in ipairs(parts(lane)) do
    for _, name in ipairs(dead_consumers(stream)) do
      local pending = handled < most and redis.call('XPENDING', stream, group, '-', '+', most - handled, name) or {}
      for _, held in ipairs(pending) do take_away(stream, held[1]) end
      handled = handled + #pending
      -- only a consumer that holds nothing, because its entries would be lost with it
      if #redis.call('XPENDING', stream, group, '-', '+', 1, name) == 0 then
        redis.call('XGROUP', 'DELCONSUMER', stream, group, name)
      end
    end
  end
end
return handled
