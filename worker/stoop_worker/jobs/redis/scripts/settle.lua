-- Ends many deliveries of one partition. For each, it stores the answer, publishes the last event and acknowledges the
-- entry, or does nothing.
-- KEYS: the dead letters, the delayed jobs, then for each delivery: lane, hash, log, result.
-- ARGV after those of the prelude and of `events`: result_ttl (ms), the same for lanes that differ (a JSON object of their
--   names, or nothing), then for each delivery: id, attempt, entry, channel, command ('end', 'dead', 'retry', 'release' or
--   'crash'), state, number of the last event, the event, the result, for 'dead' the failure and for 'retry' the delay (ms),
--   the ending for Celery, if any, and whether its events are logged ('1').
-- Returns for each delivery 1; 2 when it had been settled before; 0 when this worker does not own it.
local result_ttl, lane_ttls, each = ARGV[6], ARGV[7] ~= '' and cjson.decode(ARGV[7]) or {}, 12

local function copied(lane, entry, id)
  local found = entry_at(lane, entry)
  return found and with_id(found[2], id)
end

-- Names the lane that a job was submitted to, without its tenant, wherever it ran.
local function home_of(had) return (had.home or had.lane):match('^[^/]+') end

-- Returns how long the result of a job is kept (ms), by the lane, for all models alike.
local function ttl_of(had)
  local home = home_of(had)
  return string.format('%d', lane_ttls[had.model and home:sub(#had.model + 2) or home] or result_ttl)
end

local function tenant_of(had) return (had.home or had.lane):match('/(.+)$') or '' end

local function finish(keys, job, had)
  local ttl = ttl_of(had)
  redis.call('SET', keys.result, job.result, 'PX', ttl)
  publish_event(keys.hash, keys.log, job.channel, job.seq, job.event, had, job.logged, true)
  redis.call('HSET', keys.hash, 'state', job.state, 'worker', worker, 'attempt', job.attempt, 'entry', job.entry,
    'seq', had.seq, 'finished_at', now)
  redis.call('PEXPIRE', keys.hash, ttl)
  if job.logged == '1' then redis.call('PEXPIRE', keys.log, log_ttl) end
  if job.celery_ending ~= '' then on_inner('XADD', stem .. 'celery', '*', 'n', job.celery_ending) end
  count(job.state)
  count('ended:' .. home_of(had))
  return true
end

local commands = {['end'] = finish}

-- Adds a dead letter: the unchanged entry, and the facts that an operator needs.
function commands.dead(keys, job, had)
  local fields = copied(keys.lane, job.entry, job.id) or {'id', job.id}
  local facts = {'lane', home_of(had), 'attempt', job.attempt, 'crashes', had.crashes or 0, 'worker', worker, 'failure', job.extra,
    'tenant', tenant_of(had), 'queued_at', had.queued_at or 0, 'started_at', had.started_at or 0}
  for _, fact in ipairs(facts) do fields[#fields + 1] = fact end
  redis.call('HSET', keys.hash, 'letter', on_inner('XADD', KEYS[1], '*', unpack(fields)))
  count('dead')
  return finish(keys, job, had)
end

-- Delays the next attempt. If the entry is gone, because Redis was emptied, the job cannot run again, and nothing is done.
function commands.retry(keys, job, had)
  local fields = copied(keys.lane, job.entry, job.id)
  if not fields then return false end
  local due = had.cancel and now or now + tonumber(job.extra)
  count('retried')
  if not on_shared(nil, 'ZADD', KEYS[2], due, job.id) then return requeue(keys.hash, had, fields) end
  redis.call('HSET', keys.hash, 'state', 'delayed', 'parked', cmsgpack.pack(fields))
  return true
end

function commands.release(keys, job, had)
  local fields = copied(keys.lane, job.entry, job.id)
  if not fields or not requeue(keys.hash, had, fields) then return false end
  redis.call('HSET', keys.hash, 'attempt', tonumber(job.attempt) - 1)
  return true
end

-- `put_back` removes the entry, or keeps it in its place.
function commands.crash(keys, job, had)
  local fields = copied(keys.lane, job.entry, job.id)
  if not fields then return false end
  crashed(keys.hash, had, false)
  put_back(keys.hash, had, keys.lane, job.entry, fields)
  return true
end

local settled = {}
for i = 1, (#KEYS - 2) / 4 do
  local k, a = 3 + 4 * (i - 1), 8 + each * (i - 1)
  local keys = {lane = KEYS[k], hash = KEYS[k + 1], log = KEYS[k + 2], result = KEYS[k + 3]}
  local job = {id = ARGV[a], attempt = ARGV[a + 1], entry = ARGV[a + 2], channel = ARGV[a + 3], state = ARGV[a + 5],
    seq = tonumber(ARGV[a + 6]), event = ARGV[a + 7], result = ARGV[a + 8], extra = ARGV[a + 9],
    celery_ending = ARGV[a + 10], logged = ARGV[a + 11]}
  local had = look_up(keys.hash)
  had.lane = had.lane or keys.lane:sub(#stem + #'jobs:' + 1)
  local whose = ownership(had, job.attempt, job.entry)
  settled[i] = whose == 'done' and 2 or 0
  local command = ARGV[a + 4]
  if whose == 'owner' and commands[command](keys, job, had) then
    if command ~= 'crash' then remove(keys.lane, job.entry) end
    settled[i] = 1
  end
end
return settled
