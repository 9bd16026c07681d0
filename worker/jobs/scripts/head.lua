-- Loaded first by every script of the broker: whose call it is, and when; and where a job belongs.
-- ARGV begins with: stem, group, worker. What follows them is the script's own.
local stem, group, worker = ARGV[1], ARGV[2], ARGV[3]
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local SMALL, ALONE = 'quarantine:small', 'quarantine:alone'
-- so often a job may lose its worker, the last time while it ran alone
local MOST_CRASHES = 3
local TERMINAL = {completed = true, failed = true, cancelled = true, expired = true}

local function lives(name) return redis.call('EXISTS', stem .. 'live:' .. name) == 1 end

local function count(what) redis.call('HINCRBY', stem .. 'totals', what, 1) end

local function look_up(key)
  local names = {'state', 'lane', 'entry', 'worker', 'attempt', 'seq', 'queued_at', 'cancel', 'crashes', 'home', 'started_at'}
  local had = {}
  for i, value in ipairs(redis.call('HMGET', key, unpack(names))) do had[names[i]] = value or nil end
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

-- What ends without a run may wait anywhere; what may kill its worker runs apart.
local function place(home, crashes, cancelled)
  if cancelled or crashes == 0 or crashes >= MOST_CRASHES then return home end
  return crashes == 1 and SMALL or ALONE
end

-- Adds an entry to a lane, or to a tenant's part of it (`lane/tenant`), which no blocking read watches.
local function put(lane, fields)
  local entry = redis.call('XADD', stem .. 'jobs:' .. lane, '*', unpack(fields))
  local base, tenant = lane:match('^(.+)/(.+)$')
  if tenant then
    local ring = stem .. 'tenants:' .. base
    local last = redis.call('ZREVRANGE', ring, 0, 0, 'WITHSCORES')[2] or 0
    redis.call('ZADD', ring, 'NX', last + 1, tenant)
    redis.call('XADD', stem .. 'bell', 'MAXLEN', 1, '*', 'r', 1)
  end
  return entry
end

-- Puts a job back to where it belongs now.
local function requeue(key, had, fields)
  local home = had.home or had.lane
  local lane = place(home, tonumber(had.crashes or 0), had.cancel)
  redis.call('HSET', key, 'state', 'queued', 'entry', put(lane, fields), 'lane', lane, 'home', home)
end

-- The job's worker, or only its engine, died under it.
local function crashed(key, had, fields)
  had.crashes = redis.call('HINCRBY', key, 'crashes', 1)
  requeue(key, had, fields)
  count('reclaimed')
end
