-- Loaded before `take`: what an entry of a lane is, and whether this worker may have it.
-- The script that follows uses `claim`; it sets `now` (Unix milliseconds) first.
local stem, partition, group, worker = ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4]
local now
local TERMINAL = {completed = true, failed = true, cancelled = true, expired = true}

local function field(fields, name)
  for i = 1, #fields, 2 do
    if fields[i] == name then return fields[i + 1] end
  end
end

-- A generated id names its partition; any other id is of partition 0.
local function belongs(id)
  if type(id) ~= 'string' or #id < 1 or #id > 128 or id:find('[^A-Za-z0-9._:%-]') then return false end
  local hex, home = id:match('^([0-9a-f]+)%-(%d+)$')
  if hex and #hex == 32 and #home <= 5 then return tonumber(home) == partition end
  return partition == 0
end

-- Returns id, bytes and deadline. What is put back into a lane carries its `id`, as its entry is a new one.
local function read(entry, fields)
  local packed = field(fields, 'j') or ''
  local readable, job = pcall(cjson.decode, packed)
  if not readable or type(job) ~= 'table' then job = {} end
  local id = field(fields, 'id') or job.id
  if not belongs(id) then id = entry end
  return id, packed, type(job.deadline) == 'number' and job.deadline or nil
end

-- Whose run of this entry goes on: 'ours', 'theirs' (its owner is alive) or nil.
local function owner(had)
  if had.state ~= 'running' or not had.worker then return nil end
  if had.worker == worker then return 'ours' end
  return redis.call('EXISTS', stem .. 'live:' .. had.worker) == 1 and 'theirs' or nil
end

local function look_up(key)
  local names = {'state', 'lane', 'entry', 'worker', 'attempt', 'seq', 'queued_at', 'cancel'}
  local had = {}
  for i, value in ipairs(redis.call('HMGET', key, unpack(names))) do had[names[i]] = value or nil end
  return had
end

-- The first event of a submitted job is written only now: a stream of one entry costs 4 KB, in a lane of millions.
local function log_queued(id, had)
  if had.state == 'queued' and had.seq == '1' and not had.attempt then
    local event = '{"type":"queued","v":1,"id":"' .. id .. '","seq":0,"attempt":0}'
    redis.call('XADD', stem .. 'log:' .. id, '1-0', 'e', event)
  end
end

-- Makes this worker the owner of an entry that is pending for it; returns the delivery, or nil if it is not to run:
-- a duplicate (its job has ended, or lives under another entry) is acknowledged and dropped.
local function claim(lane, stream, entry, fields)
  local id, packed, deadline = read(entry, fields)
  local key = stem .. 'job:' .. id
  local had = look_up(key)
  if had.state and (TERMINAL[had.state] or had.entry ~= entry or had.lane ~= lane) then
    redis.call('XACK', stream, group, entry)
    redis.call('XDEL', stream, entry)
    return nil
  end
  local whose = owner(had)
  if whose == 'theirs' then
    redis.call('XCLAIM', stream, group, had.worker, 0, entry, 'JUSTID')
    return nil
  end
  log_queued(id, had)
  local attempt = tonumber(had.attempt or 0) + (whose == 'ours' and 0 or 1)
  local queued_at = had.queued_at or entry:match('^%d+')
  redis.call('HSET', key, 'state', 'running', 'lane', lane, 'entry', entry, 'worker', worker, 'attempt', attempt,
    'seq', had.seq or 0, 'queued_at', queued_at, 'started_at', now)
  local verdict = had.cancel and 'cancelled' or (deadline and deadline <= now and 'expired') or ''
  return {lane, entry, id, packed, attempt, tonumber(had.seq or 0), tonumber(queued_at), verdict}
end
