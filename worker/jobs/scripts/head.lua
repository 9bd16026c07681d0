-- Loaded first by every script of the broker: whose call it is, and when; and where a job belongs.
-- ARGV begins with: stem, group, worker. What follows them is the script's own.
local stem, group, worker = ARGV[1], ARGV[2], ARGV[3]
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local SMALL, ALONE = 'quarantine:small', 'quarantine:alone'
-- so often a job may be held a suspect, the last time when it crashed alone
local MOST_DOUBTS = 3
-- in whose name entries wait that were given back; no worker has such a name
local GIVEN_BACK = '-'
local TERMINAL = {completed = true, failed = true, cancelled = true, expired = true}

local function lives(name) return redis.call('EXISTS', stem .. 'live:' .. name) == 1 end

local function count(what) redis.call('HINCRBY', stem .. 'totals', what, 1) end

-- Runs a command on a key of one job. What cannot be that job's, as somebody else wrote it, is removed: one bad key must
-- not end a script that serves many jobs. Returns the reply, and whether the key was removed.
local function on_own(command, key, ...)
  local reply = redis.pcall(command, key, ...)
  if type(reply) ~= 'table' or not reply.err then return reply, false end
  if not (reply.err:find('WRONGTYPE', 1, true) or reply.err:find('equal or smaller', 1, true)) then
    return redis.call(command, key, ...), false
  end
  redis.call('DEL', key)
  return redis.call(command, key, ...), true
end

local function look_up(key)
  local names = {'state', 'lane', 'entry', 'worker', 'attempt', 'seq', 'queued_at', 'cancel', 'crashes', 'home', 'started_at',
    'spared', 'unlogged'}
  local had = {}
  for i, value in ipairs(on_own('HMGET', key, unpack(names))) do had[names[i]] = value or nil end
  return had
end

-- The entry's fields with `id`, which it must carry where its own place in the stream no longer says it.
local function with_id(fields, id)
  local copy = {'id', id}
  for i = 1, #fields, 2 do
    if fields[i] ~= 'id' then
      copy[#copy + 1] = fields[i]
      copy[#copy + 1] = fields[i + 1]
    end
  end
  return copy
end

-- How many crashes count against a job: all but the first death of a whole worker, which has many causes.
local function doubts(had)
  return tonumber(had.crashes or 0) - (had.spared and 1 or 0)
end

-- Which lane a job belongs to now. What ends without a run may wait anywhere; a suspect runs apart.
local function place(had)
  local doubt, home = doubts(had), had.home or had.lane
  if had.cancel or doubt == 0 or doubt >= MOST_DOUBTS then return home end
  return doubt == 1 and SMALL or ALONE
end

local function ring_bell() redis.call('XADD', stem .. 'bell', 'MAXLEN', 1, '*', 'r', 1) end

-- Adds an entry to a lane, or to a tenant's part of it (`lane/tenant`), which no blocking read watches.
local function put(lane, fields)
  local entry = redis.call('XADD', stem .. 'jobs:' .. lane, '*', unpack(fields))
  local base, tenant = lane:match('^(.+)/(.+)$')
  if tenant then
    local ring = stem .. 'tenants:' .. base
    local last = redis.call('ZREVRANGE', ring, 0, 0, 'WITHSCORES')[2] or 0
    redis.call('ZADD', ring, 'NX', last + 1, tenant)
    ring_bell()
  end
  return entry
end

-- A job that was cancelled is the next to be claimed, wherever it waits.
local function hasten(key, had)
  if had.cancel then redis.call('ZADD', stem .. 'cancelled', 0, key:sub(#stem + #'job:' + 1)) end
end

-- Puts a job that has no entry now to where it belongs.
local function requeue(key, had, fields)
  local lane = place(had)
  redis.call('HSET', key, 'state', 'queued', 'entry', put(lane, fields), 'lane', lane, 'home', had.home or had.lane)
  hasten(key, had)
end

-- Puts a claimed job back to where it belongs now. If that is where it is, its entry stays, to be claimed before all that
-- came later: nothing can be put in front of a stream.
local function put_back(key, had, stream, entry, fields)
  if place(had) == had.lane then
    redis.call('XCLAIM', stream, group, GIVEN_BACK, 0, entry, 'JUSTID')
    redis.call('HSET', key, 'state', 'queued', 'entry', entry, 'lane', had.lane)
    redis.call('HDEL', key, 'worker')
    hasten(key, had)
    return ring_bell()
  end
  requeue(key, had, fields)
  redis.call('XACK', stream, group, entry)
  redis.call('XDEL', stream, entry)
end

-- The job's worker, or only its engine, died under it. `spare` says that this may not count, once.
local function crashed(key, had, spare)
  had.crashes = redis.call('HINCRBY', key, 'crashes', 1)
  if spare and not had.spared then
    had.spared = '1'
    redis.call('HSET', key, 'spared', 1)
  end
  count('reclaimed')
end
