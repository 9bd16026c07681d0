-- Loaded before `take`: chooses the workers that run quarantined jobs. As many take a turn as are needed to run all jobs at
-- once, but at most half of the model's live workers, so that the lanes go on. A sorted set has each until its turn ends.
local in_quarantine = stem .. 'turns' .. (model and ':' .. model or '')

local function enter_quarantine(ends) on_inner('ZADD', in_quarantine, 'NX', ends, worker) end

local function leave_quarantine() on_inner('ZREM', in_quarantine, worker) end

-- Returns how many other workers have a turn. Dead workers, and those whose turn took too long, lose it.
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

-- Returns whether the worker of this record serves the lanes of `model`, or those without a model.
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

-- Returns whether one more worker should take a turn; `wanted` workers could run all quarantined jobs.
local function is_wanted(wanted)
  return others_in_quarantine() < math.min(wanted, math.max(1, math.ceil(living() / 2)))
end
