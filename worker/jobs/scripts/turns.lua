-- Loaded before `take`: who runs quarantined jobs. As many workers turn to them as it takes to run all of them at once, but
-- never more than half of those that live, so that the lanes go on. Each is in a sorted set, until its turn is over.
local at_turn = stem .. 'turns'

local function begin_turn(ends) redis.call('ZADD', at_turn, 'NX', ends, worker) end

local function end_turn() redis.call('ZREM', at_turn, worker) end

-- How many others have a turn; those that died are forgotten, and those whose turn takes too long.
local function others_at_turn()
  redis.call('ZREMRANGEBYSCORE', at_turn, '-inf', now)
  local others = 0
  for _, name in ipairs(redis.call('ZRANGE', at_turn, 0, -1)) do
    if not lives(name) then
      redis.call('ZREM', at_turn, name)
    elseif name ~= worker then
      others = others + 1
    end
  end
  return others
end

local function living()
  local count = 0
  for _, name in ipairs(redis.call('HKEYS', stem .. 'workers')) do
    if lives(name) then count = count + 1 end
  end
  return count
end

-- Whether one more worker is wanted, where that many could run all there is.
local function is_wanted(wanted)
  return others_at_turn() < math.min(wanted, math.max(1, math.ceil(living() / 2)))
end
