-- Loaded first by every script of the broker: the caller, the time, and the functions that find a job's lane.
-- ARGV begins with: stem, group, worker. The script's own arguments follow.
local stem, group, worker = ARGV[1], ARGV[2], ARGV[3]
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local SMALL, ALONE = 'quarantine:small', 'quarantine:alone'
-- the counted crashes after which a job does not run again: in a full batch, in a small batch, and alone
local MOST_CRASHES = 3
-- the consumer of entries that were given back; no worker has this name
local GIVEN_BACK = '-'
-- While a Cluster moves the slot to another node, a script would see only some of the keys. Reading two keys that never
-- exist then fails on both nodes, before anything is written. To the worker, Redis is away until the slot has moved.
redis.call('EXISTS', stem .. 'live:/', stem .. 'live://')

local TERMINAL = {completed = true, failed = true, cancelled = true, expired = true}

local function lives(name) return redis.call('EXISTS', stem .. 'live:' .. name) == 1 end

local function count(what) redis.pcall('HINCRBY', stem .. 'totals', what, 1) end

-- Producers may write to shared keys. A shared key of the wrong type, or a stream that takes no more entries, is noted in
-- `spoilt` and counts as empty, so that everything else goes on.
local spoilt = {}
local SPOILT = {'WRONGTYPE', 'exhausted', 'equal or smaller'}

local function is_spoilt(reply)
  if type(reply) ~= 'table' or not reply.err then return false end
  for _, words in ipairs(SPOILT) do
    if reply.err:find(words, 1, true) then return true end
  end
  return false
end

-- Runs a command on a shared key; returns `instead` if the key is spoilt.
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

-- Runs a command on a key of one job, or on the bell. A foreign value there is removed, because one bad key must not end
-- a script that serves many jobs. Returns the reply, and whether the key was removed.
local function on_own(command, key, ...)
  local reply = redis.pcall(command, key, ...)
  if type(reply) ~= 'table' or not reply.err then return reply, false end
  if is_spoilt(reply) then redis.call('DEL', key) end
  return redis.call(command, key, ...), is_spoilt(reply)
end

-- Runs a command on a key that only workers and operators write. A key of the wrong type is foreign, so it is removed.
local function on_inner(command, key, ...)
  local reply = redis.pcall(command, key, ...)
  if type(reply) ~= 'table' or not reply.err then return reply end
  if reply.err:find('WRONGTYPE', 1, true) then redis.call('DEL', key) end
  return redis.call(command, key, ...)
end

-- The patterns of the fields of a job's hash. No worker writes a longer number.
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

-- Returns the entry's fields with `id`, which a job must carry once its entry is a new one. If an entry has more fields
-- than a script can pass on, the first ones and the job are kept.
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

-- Returns how many crashes count against a job: all except the first death of a whole worker, which has many causes.
local function counted_crashes(had)
  return tonumber(had.crashes or 0) - (had.spared and 1 or 0)
end

-- Names a lane of a model; nil stands for the lanes without one.
local function of_model(model, lane) return model and model .. ':' .. lane or lane end

-- Returns the lane that a job belongs to now. A job that ends without a run may wait anywhere. A suspect runs in the
-- quarantine of the model whose lanes it was claimed from.
local function lane_of(had)
  local crashes, home = counted_crashes(had), had.home or had.lane
  if had.cancel or crashes == 0 or crashes >= MOST_CRASHES then return home end
  return of_model(had.model, crashes == 1 and SMALL or ALONE)
end

-- Returns whether a lane belongs to the quarantine of any model.
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

-- Makes a cancelled job the next one to be claimed, wherever it waits.
local function settle_soon(key, had)
  if had.cancel then on_shared(0, 'ZADD', stem .. 'cancelled', 0, key:sub(#stem + #'job:' + 1)) end
end

-- Puts a job without an entry into its lane; returns whether any lane took it.
local function requeue(key, had, fields)
  local entry, lane = put_somewhere(lane_of(had), had.model, fields)
  if not entry then return false end
  redis.call('HSET', key, 'state', 'queued', 'entry', entry, 'lane', lane, 'home', had.home or had.lane)
  settle_soon(key, had)
  return true
end

-- Puts a claimed job back into its lane. If it is in that lane, its entry stays, and is claimed before all later ones: no
-- entry can be added at the front of a stream.
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

-- Records that the job's worker, or only its engine, died under it. With `spare`, the first such death does not count.
local function crashed(key, had, spare)
  had.crashes = (tonumber(had.crashes) or 0) + 1
  redis.call('HSET', key, 'crashes', had.crashes, 'lost:' .. (had.attempt or 0), now .. ' ' .. (had.worker or ''))
  if spare and not had.spared then
    had.spared = '1'
    redis.call('HSET', key, 'spared', 1)
  end
  count('reclaimed')
end
