-- Puts jobs of one partition into one lane: all of them, or none.
-- KEYS: the lane's stream, then for each job its hash, and after it its idempotency key if it has one.
-- ARGV: bound of the lane, idempotency_ttl (ms), lane, then for each job: id, digest, whether it has an idempotency key
--   ('1'), channel, the packed job, the packed first event.
-- Returns {'put', ids...}, {'conflict', the id that holds the key} or {'full', milliseconds until there is room}.
-- A job submitted again (same id or key, same digest) is put once, so a call whose reply was lost may be repeated.
local lane, bound, idempotency_ttl = KEYS[1], tonumber(ARGV[1]), ARGV[2]
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local seen, fresh, ids = {}, {}, {'put'}

-- Returns the id and digest of the job submitted before under this id or key.
local function before(job)
  local earlier = seen[job.hash] or (job.idem and seen[job.idem])
  if earlier then return earlier.id, earlier.digest end
  if job.idem then
    local digest, id = (redis.call('GET', job.idem) or ''):match('^(%S+) (.+)$')
    if id then return id, digest end
  end
  if redis.call('EXISTS', job.hash) == 1 then return job.id, redis.call('HGET', job.hash, 'digest') end
end

-- By Little's law the lane gives up its depth in the time its oldest entry has been there.
local function patience(depth, wanted)
  local oldest = redis.call('XRANGE', lane, '-', '+', 'COUNT', 1)[1]
  local age = oldest and now - tonumber(oldest[1]:match('^%d+')) or 0
  return math.floor(math.min(60000, math.max(1000, age * wanted / math.max(1, depth))))
end

local at = 2
for i = 4, #ARGV, 6 do
  local job = {id = ARGV[i], digest = ARGV[i + 1], channel = ARGV[i + 3], packed = ARGV[i + 4], event = ARGV[i + 5]}
  job.hash = KEYS[at]
  if ARGV[i + 2] == '1' then job.idem = KEYS[at + 1] end
  at = at + (job.idem and 2 or 1)
  local id, digest = before(job)
  if id and digest ~= job.digest then return {'conflict', id} end
  if not id then
    fresh[#fresh + 1] = job
    seen[job.hash] = job
    if job.idem then seen[job.idem] = job end
  end
  ids[#ids + 1] = id or job.id
end

local depth = redis.call('XLEN', lane)
if #fresh > 0 and depth + #fresh > bound then return {'full', patience(depth, #fresh)} end
for _, job in ipairs(fresh) do
  local entry = redis.call('XADD', lane, '*', 'j', job.packed)
  redis.call('HSET', job.hash, 'state', 'queued', 'lane', ARGV[3], 'entry', entry, 'seq', 1, 'queued_at', now,
    'digest', job.digest)
  if job.idem then redis.call('SET', job.idem, job.digest .. ' ' .. job.id, 'PX', idempotency_ttl) end
  redis.call('PUBLISH', job.channel, job.event)
end
return ids
