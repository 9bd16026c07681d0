-- Loaded first by every script of the broker: whose call it is, and when; and where a job belongs.
-- ARGV begins with: stem, group, worker. What follows them is the script's own.
local stem, group, worker = ARGV[1], ARGV[2], ARGV[3]
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local SMALL, ALONE = 'quarantine:small', 'quarantine:alone'
-- the number of counted crashes after which a job is not run again: once among others, once in a small batch, once alone
local MOST_CRASHES = 3
-- the consumer that holds entries which were given back; no worker has this name
local GIVEN_BACK = '-'
-- While a Cluster moves the slot to another node, a script would see some keys and not others. A look at two keys that
-- never exist fails then on both nodes, before anything is written: to the worker Redis is away until the slot has moved.
redis.call('EXISTS', stem .. 'live:/', stem .. 'live://')

local TERMINAL = {completed = true, failed = true, cancelled = true, expired = true}

local function lives(name) return redis.call('EXISTS', stem .. 'live:' .. name) == 1 end

local function count(what) redis.pcall('HINCRBY', stem .. 'totals', what, 1) end

-- Producers may write to what is shared. Such a key of the wrong type, or a stream that takes no entries any more, is
-- noted in `spoilt` and counts as empty, so that everything else goes on.
local spoilt = {}
local SPOILT = {'WRONGTYPE', 'exhausted', 'equal or smaller'}

local function is_spoilt(reply)
  if type(reply) ~= 'table' or not reply.err then return false end
  for _, words in ipairs(SPOILT) do
    if reply.err:find(words, 1, true) then return true end
  end
  return false
end

-- Runs a command on a key that is shared; returns `instead` if the key is spoilt.
local function on_shared(instead, command, key, ...)
  local reply = redis.pcall(command, key, ...)
  if is_spoilt(reply) then
    spoilt[key] = true
    return instead
  end
  if type(reply) == 'table' and reply.err then return redis.call(command, key, ...) end
  return reply
end

local function entry_at(stream, entry)
  local found = redis.pcall('XRANGE', stream, entry, entry)
  if found.err and found.err:find('Invalid stream ID', 1, true) then return nil end
  return on_shared({}, 'XRANGE', stream, entry, entry)[1]
end

-- Removes an entry that has been claimed.
local function remove(stream, entry)
  on_shared(0, 'XACK', stream, group, entry)
  on_shared(0, 'XDEL', stream, entry)
end

-- Runs a command on a key of one job, or on the bell. What somebody else wrote there is removed: one bad key must
-- not end a script that serves many jobs. Returns the reply, and whether the key was removed.
local function on_own(command, key, ...)
  local reply = redis.pcall(command, key, ...)
  if type(reply) ~= 'table' or not reply.err then return reply, false end
  if is_spoilt(reply) then redis.call('DEL', key) end
  return redis.call(command, key, ...), is_spoilt(reply)
end

-- Runs a command on a key that only workers and operators write. A key of the wrong type holds nothing of theirs, so it
-- is removed.
local function on_inner(command, key, ...)
  local reply = redis.pcall(command, key, ...)
  if type(reply) ~= 'table' or not reply.err then return reply end
  if reply.err:find('WRONGTYPE', 1, true) then redis.call('DEL', key) end
  return redis.call(command, key, ...)
end

-- What a field of a job's hash must look like; a number of more digits is none that a worker wrote.
local NUMBER, LANE = '^%d%d?%d?%d?%d?%d?%d?%d?%d?%d?%d?%d?%d?%d?%d?$', '^[%w._:-]+/?[%w._:-]*$'
local LOOKS = {attempt = NUMBER, seq = NUMBER, queued_at = NUMBER, crashes = NUMBER, started_at = NUMBER,
  lane = LANE, home = LANE, entry = '^%d+%-%d+$', model = '^[%w._-]+$'}

-- Returns the fields of a job's hash. An invalid field is left out, and its name is `had.invalid`.
local function look_up(key)
  local names = {'state', 'lane', 'entry', 'worker', 'attempt', 'seq', 'queued_at', 'cancel', 'crashes', 'home', 'started_at',
    'spared', 'unlogged', 'model', 'digest'}
  local had = {}
  for i, value in ipairs(on_own('HMGET', key, unpack(names))) do
    local name = names[i]
    if value and LOOKS[name] and not value:find(LOOKS[name]) then
      had.invalid = name
    else
      had[name] = value or nil
    end
  end
  local lane = had.home or had.lane
  if had.model and lane and lane:sub(1, #had.model + 1) ~= had.model .. ':' then had.invalid, had.model = 'model', nil end
  return had
end

-- The entry's fields with `id`, which it must carry where its own place in the stream no longer says it. Of an entry with
-- more fields than a script can pass on, the first are kept, and the job in any case.
local MOST_FIELDS = 64
local function with_id(fields, id)
  local copy, job = {'id', id}, nil
  for i = 1, #fields, 2 do
    local name = fields[i]
    local is_job = not job and (name == 'j' or name == 'm')
    if name ~= 'id' and (is_job or #copy < 2 * MOST_FIELDS) then
      copy[#copy + 1] = name
      copy[#copy + 1] = fields[i + 1]
    end
    if is_job then job = name end
  end
  return copy
end

-- How many crashes count against a job: all but the first death of a whole worker, which has many causes.
local function counted_crashes(had)
  return tonumber(had.crashes or 0) - (had.spared and 1 or 0)
end

-- Names a lane of a model; nil stands for the lanes without one.
local function of_model(model, lane) return model and model .. ':' .. lane or lane end

-- Which lane a job belongs to now. What ends without a run may wait anywhere; a suspect runs apart, in the quarantine of
-- the model whose lanes it was claimed from.
local function lane_of(had)
  local crashes, home = counted_crashes(had), had.home or had.lane
  if had.cancel or crashes == 0 or crashes >= MOST_CRASHES then return home end
  return of_model(had.model, crashes == 1 and SMALL or ALONE)
end

-- Whether a lane is one of the quarantine, of whatever model.
local function is_quarantine(lane)
  local name = ':' .. lane
  return name:sub(-#SMALL - 1) == ':' .. SMALL or name:sub(-#ALONE - 1) == ':' .. ALONE
end

local function ring_bell() on_own('XADD', stem .. 'bell', 'MAXLEN', 1, '*', 'r', 1) end

-- Adds an entry to a lane, or to a tenant's part of it (`lane/tenant`), which no blocking read watches. Returns nil if the
-- lane is spoilt.
local function put(lane, fields)
  local entry = on_shared(nil, 'XADD', stem .. 'jobs:' .. lane, '*', unpack(fields))
  local base, tenant = lane:match('^(.+)/(.+)$')
  if entry and tenant then
    local ring = stem .. 'tenants:' .. base
    local last = on_shared({}, 'ZREVRANGE', ring, 0, 0, 'WITHSCORES')[2] or 0
    on_shared(0, 'ZADD', ring, 'NX', last + 1, tenant)
    ring_bell()
  end
  return entry
end

-- Adds an entry to a lane or, if that is spoilt, to one that every worker of its model serves. Returns the entry and its
-- lane.
local function put_somewhere(lane, model, fields)
  for _, each in ipairs({lane, of_model(model, SMALL), of_model(model, ALONE)}) do
    local entry = put(each, fields)
    if entry then return entry, each end
  end
end

-- A job that was cancelled is the next to be claimed, wherever it waits.
local function settle_soon(key, had)
  if had.cancel then on_shared(0, 'ZADD', stem .. 'cancelled', 0, key:sub(#stem + #'job:' + 1)) end
end

-- Puts a job that has no entry now to where it belongs; returns whether any lane took it.
local function requeue(key, had, fields)
  local entry, lane = put_somewhere(lane_of(had), had.model, fields)
  if not entry then return false end
  redis.call('HSET', key, 'state', 'queued', 'entry', entry, 'lane', lane, 'home', had.home or had.lane)
  settle_soon(key, had)
  return true
end

-- Puts a claimed job back to where it belongs now. If that is where it is, its entry stays, to be claimed before all that
-- came later: nothing can be put in front of a stream.
local function put_back(key, had, stream, entry, fields)
  if lane_of(had) == had.lane then
    on_shared(0, 'XCLAIM', stream, group, GIVEN_BACK, 0, entry, 'JUSTID')
    redis.call('HSET', key, 'state', 'queued', 'entry', entry, 'lane', had.lane)
    redis.call('HDEL', key, 'worker')
    settle_soon(key, had)
    return ring_bell()
  end
  if requeue(key, had, fields) then remove(stream, entry) end
end

-- The job's worker, or only its engine, died under it. `spare` says that this may not count, once.
local function crashed(key, had, spare)
  had.crashes = (tonumber(had.crashes) or 0) + 1
  redis.call('HSET', key, 'crashes', had.crashes, 'lost:' .. (had.attempt or 0), now .. ' ' .. (had.worker or ''))
  if spare and not had.spared then
    had.spared = '1'
    redis.call('HSET', key, 'spared', 1)
  end
  count('reclaimed')
end
