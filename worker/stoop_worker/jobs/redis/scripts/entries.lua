-- Loaded before `take` and `reclaim`: reads an entry of a lane, and makes this worker the owner of its job.
-- ARGV after the prelude's: partition. The last of KEYS, a quarantine, names the model of all these lanes (nil: lanes
-- without a model).
local partition = tonumber(ARGV[4])
local model = KEYS[#KEYS]:sub(#stem + #'jobs:' + 1):match('^(.+):' .. ALONE .. '$')

local function field(fields, name)
  for i = 1, #fields, 2 do
    if fields[i] == name then return fields[i + 1] end
  end
end

-- Returns whether an id is valid here. A generated id names its partition; any other id belongs to partition 0.
local function belongs(id)
  if type(id) ~= 'string' or #id < 1 or #id > 128 or id:find('[^A-Za-z0-9._:%-]') then return false end
  local hex, home = id:match('^([0-9a-f]+)%-(%d+)$')
  if hex and #hex == 32 and #home <= 5 then return tonumber(home) == partition end
  return partition == 0
end

-- Names a job without an id by its entry, and its lane too if another lane's entry has taken that name.
local function own_name(lane, entry)
  local other = look_up(stem .. 'job:' .. entry)
  local home = other.home or other.lane
  return (not home or home == lane) and entry or entry .. '.' .. lane:gsub('/', '.')
end

-- Returns the id, the bytes, the deadline, 1 if the bytes are a Celery message, and the job's `stream` if it is set. A job
-- that was put back into a lane carries its `id` in the entry, because the entry is new.
local function read(lane, entry, fields)
  local message = field(fields, 'm')
  local packed = message or field(fields, 'j') or ''
  -- parsing an oversized entry would block Redis
  local readable, job = pcall(cjson.decode, #packed <= 8388608 and packed or '')
  if not readable or type(job) ~= 'table' then job = {stream = true} end
  local streams = message ~= nil or job.stream
  if message then job = type(job.headers) == 'table' and {id = job.headers.id} or {} end
  local id = field(fields, 'id') or job.id
  if not belongs(id) then id = own_name(lane, entry) end
  return id, packed, type(job.deadline) == 'number' and job.deadline or nil, message and 1 or 0, streams
end

-- Returns whether the job has ended, or lives under another entry that exists.
local function is_duplicate(had, lane, entry)
  if not had.state or TERMINAL[had.state] then return had.state end
  if had.entry == entry and had.lane == lane then return false end
  return had.state == 'delayed' or had.entry and had.lane and entry_at(stem .. 'jobs:' .. had.lane, had.entry)
end

-- Returns 1 if the events of a job are logged. A job that does not stream needs no log. If no client submitted the job,
-- its producer may wait on the log, so it is kept unless the job says "stream": false.
local function is_logged(had, streams)
  return (streams == true or streams ~= false and not had.digest) and 1 or 0
end

-- Writes the first event of a submitted job. A stream of one entry takes 4 KB, too much for each of millions of waiting jobs.
local function begin_log(id, had, logged)
  if had.attempt and logged == 1 then return end
  -- the key may be left by an earlier release, which logged every job, by an old job of this id, or by another program
  redis.call('DEL', stem .. 'log:' .. id)
  if logged == 1 and had.state == 'queued' and had.seq == '1' then
    local event = '{"type":"queued","v":1,"id":"' .. id .. '","seq":0,"attempt":0}'
    redis.call('XADD', stem .. 'log:' .. id, '1-0', 'e', event)
  end
end

-- Returns the reason to end a job before it runs; the empty string if it may run.
local function verdict(had, deadline)
  if had.cancel then return 'cancelled' end
  if had.invalid then return 'invalid ' .. had.invalid end
  if deadline and deadline <= now then return 'expired' end
  return counted_crashes(had) >= MOST_CRASHES and 'lost' or ''
end

-- Records the time and the worker of each claim, for people who look into a job; only for jobs that run more than once.
local function note_claim(key, had, attempt)
  if attempt < 2 then return end
  if attempt == 2 and had.started_at then redis.call('HSET', key, 'claimed:1', had.started_at .. ' ' .. (had.worker or '')) end
  redis.call('HSET', key, 'claimed:' .. string.format('%d', attempt), now .. ' ' .. worker)
end

-- Makes this worker the owner of an entry that is pending for it. Returns the delivery, or nil if it must not run. A
-- duplicate is acknowledged and dropped. A job that this worker runs already is returned only if `unknown` is set.
local function claim(lane, stream, entry, fields, unknown)
  local id, packed, deadline, celery, streams = read(lane, entry, fields)
  local key = stem .. 'job:' .. id
  local had = look_up(key)
  if is_duplicate(had, lane, entry) then
    remove(stream, entry)
    return nil
  end
  local ours = had.state == 'running' and had.worker == worker
  if ours and not unknown then return nil end
  if had.state == 'running' and had.worker and had.worker ~= GIVEN_BACK and not ours then
    -- it was claimed out of turn, or the group is new; if its owner is dead, `reclaim` will find it under that name
    redis.call('XCLAIM', stream, group, had.worker, 0, entry, 'JUSTID')
    return nil
  end
  local logged = is_logged(had, streams)
  begin_log(id, had, logged)
  local attempt = tonumber(had.attempt or 0) + (ours and 0 or 1)
  -- a producer may choose any id for an entry
  local queued_at = math.min(now, tonumber(had.queued_at or entry:match('^%d+')))
  redis.call('HSET', key, 'state', 'running', 'lane', lane, 'entry', entry, 'worker', worker, 'attempt', attempt,
    'seq', had.seq or 0, 'queued_at', queued_at, 'started_at', now)
  note_claim(key, had, attempt)
  if model then redis.call('HSET', key, 'model', model)
  elseif had.model or had.invalid then redis.call('HDEL', key, 'model') end
  if had.invalid then redis.call('HSET', key, 'crashes', had.crashes or 0, 'home', had.home or lane) end
  -- a cancel flag set before the job exists has a time to live, which would delete the job too
  if had.cancel and not had.state then redis.call('PERSIST', key) end
  return {lane, entry, id, packed, attempt, tonumber(had.seq or 0), queued_at, verdict(had, deadline),
    tonumber(had.crashes or 0), celery, logged}
end
