-- Puts jobs of one partition into one lane: all of them, or none.
-- KEYS: the lane's stream, the lane's tenants, the bell, then for each job its hash, and after it its idempotency key if
--   it has one.
-- ARGV: bound of the lane, idempotency_ttl (ms), lane, bound of a tenant in the lane, then for each job: id, digest,
--   whether it has an idempotency key ('1'), channel, the packed job, the packed first event, its tenant (or nothing).
-- Returns {'put', ids...}, {'conflict', the id that holds the key} or {'full', milliseconds until there is room}.
-- A job submitted again (same id or key, same digest) is put once, so a call whose reply was lost may be repeated.
-- The jobs of a tenant are in a stream of their own, `<the lane's>/<tenant>`, so that tenants can take turns.
local lane, ring, bell, bound, idempotency_ttl = KEYS[1], KEYS[2], KEYS[3], tonumber(ARGV[1]), ARGV[2]
local tenant_bound = tonumber(ARGV[4])
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
  -- a hash without a state holds no job, only the wish to cancel one
  local known = redis.call('HMGET', job.hash, 'state', 'digest')
  if known[1] then return job.id, known[2] end
end

-- By Little's law the lane gives up its depth in the time its oldest entry has been there.
local function patience(depth, wanted)
  local oldest = redis.call('XRANGE', lane, '-', '+', 'COUNT', 1)[1]
  local age = oldest and now - tonumber(oldest[1]:match('^%d+')) or 0
  return math.floor(math.min(60000, math.max(1000, age * wanted / math.max(1, depth))))
end

-- What the lane and all its tenants hold: one look at each tenant that has jobs there.
local function depth_of_all()
  local depth = redis.call('XLEN', lane)
  for _, tenant in ipairs(redis.call('ZRANGE', ring, 0, -1)) do
    if tenant ~= '' then depth = depth + redis.call('XLEN', lane .. '/' .. tenant) end
  end
  return depth
end

-- Returns the depth and the number of new jobs where there is no room for them, if anywhere.
local function overfull()
  local depth, of_tenant = depth_of_all(), {}
  if depth + #fresh > bound then return depth, #fresh end
  for _, job in ipairs(fresh) do
    if job.tenant ~= '' then of_tenant[job.tenant] = (of_tenant[job.tenant] or 0) + 1 end
  end
  for tenant, wanted in pairs(of_tenant) do
    local own = redis.call('XLEN', lane .. '/' .. tenant)
    if own + wanted > tenant_bound then return own, wanted end
  end
end

local function put(job)
  if job.tenant == '' then return redis.call('XADD', lane, '*', 'j', job.packed), ARGV[3] end
  local last = redis.call('ZREVRANGE', ring, 0, 0, 'WITHSCORES')[2] or 0
  redis.call('ZADD', ring, 'NX', last + 1, job.tenant)
  return redis.call('XADD', lane .. '/' .. job.tenant, '*', 'j', job.packed), ARGV[3] .. '/' .. job.tenant
end

local at = 4
for i = 5, #ARGV, 7 do
  local job = {id = ARGV[i], digest = ARGV[i + 1], channel = ARGV[i + 3], packed = ARGV[i + 4], event = ARGV[i + 5],
    tenant = ARGV[i + 6]}
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

if #fresh > 0 then
  local depth, wanted = overfull()
  if depth then return {'full', patience(depth, wanted)} end
end
local rings = false
for _, job in ipairs(fresh) do
  local entry, place = put(job)
  redis.call('HSET', job.hash, 'state', 'queued', 'lane', place, 'entry', entry, 'seq', 1, 'queued_at', now,
    'digest', job.digest)
  redis.call('PERSIST', job.hash)
  if job.idem then redis.call('SET', job.idem, job.digest .. ' ' .. job.id, 'PX', idempotency_ttl) end
  redis.call('PUBLISH', job.channel, job.event)
  rings = rings or job.tenant ~= ''
end
-- idle workers watch the lane's own stream, not those of its tenants
if rings then redis.call('XADD', bell, 'MAXLEN', 1, '*', 'r', 1) end
return ids
