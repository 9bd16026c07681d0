-- Loaded before `take`: who runs quarantined jobs. As many workers turn to them as it takes to run all of them at once, but
-- never more than half of the model's that live, so that the lanes go on. Each is in a sorted set, until its turn is over.
local in_quarantine = stem .. 'turns' .. (model and ':' .. model or '')

local function enter_quarantine(ends) on_inner('ZADD', in_quarantine, 'NX', ends, worker) end

local function leave_quarantine() on_inner('ZREM', in_quarantine, worker) end

-- How many others have a turn; those that died are forgotten, and those whose turn takes too long.
local function others_in_quarantine()
  on_inner('ZREMRANGEBYSCORE', in_quarantine, '-inf', now)
  local others = 0
  for _, name in ipairs(on_inner('ZRANGE', in_quarantine, 0, -1)) do
    if not lives(name) then
      on_inner('ZREM', in_quarantine, name)
    elseif name ~= worker then
      others = others + 1
    end
  end
  return others
end

-- Whether a worker that says this of itself serves the lanes of `model`, or those without a model.
local function serves(record)
  local readable, facts = pcall(cjson.decode, record)
  if not readable or type(facts) ~= 'table' then facts = {} end
  if model then return facts.name == model end
  return facts.serves_default ~= false
end

local function living()
  local count, known = 0, on_inner('HGETALL', stem .. 'workers')
  for i = 1, #known, 2 do
    if lives(known[i]) and serves(known[i + 1]) then count = count + 1 end
  end
  return count
end

-- Whether one more worker is wanted, where that many could run all there is.
local function is_wanted(wanted)
  return others_in_quarantine() < math.min(wanted, math.max(1, math.ceil(living() / 2)))
end
