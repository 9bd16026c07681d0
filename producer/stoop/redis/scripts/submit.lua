-- Puts jobs of one partition into one lane: all of them, or none.
-- KEYS: the lane's stream, the lane's tenants, the bell, the count of what the tenants hold, then for each job its hash,
--   after it its idempotency key if it has one, and then its tenant's stream if it has a tenant.
-- ARGV: bound of the lane, idempotency_ttl (ms), lane, bound of a tenant in the lane, then for each job: id, digest,
--   whether it has an idempotency key ('1'), channel, the packed job, the packed first event, its tenant (or nothing).
-- Returns {'put', ids...}, {'conflict', the id of the earlier job, 'key' or 'id': what is taken} or {'full', milliseconds
--   until there is room}.
-- A job submitted again (same id or key, same digest) is put once, so a call whose reply was lost may be repeated.
-- Each tenant's jobs are in a separate stream, `<the lane's>/<tenant>`, so that tenants can take turns.
local lane, ring, bell, held, bound, idempotency_ttl = KEYS[1], KEYS[2], KEYS[3], KEYS[4], tonumber(ARGV[1]), ARGV[2]
local tenant_bound = tonumber(ARGV[4])
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local seen, fresh, ids = {}, {}, {'put'}

-- only workers put jobs into the quarantine
if (':' .. ARGV[3]):find(':quarantine:', 1, true) then return redis.error_reply('ERR lane ' .. ARGV[3] .. ' is reserved') end

-- Returns the id and digest of the job submitted before under this idempotency key. A job that Redis has forgotten
-- frees its key, because nothing would ever answer under that id.
local function under_key(job)
  if seen[job.idem] then return seen[job.idem].id, seen[job.idem].digest end
  local digest, id = (redis.call('GET', job.idem) or ''):match('^(%S+) (.+)$')
  if id and redis.call('HGET', lane:match('^(.-})') .. ':job:' .. id, 'state') then return id, digest end
end

-- Returns the id and digest of the job submitted before under this id or key, and which of them it was.
local function before(job)
  if seen[job.hash] then return job.id, seen[job.hash].digest, 'id' end
  local id, digest
  if job.idem then id, digest = under_key(job) end
  if id then return id, digest, id == job.id and 'id' or 'key' end
  -- a hash without a state holds only the flag that cancels a job to come
  local known = redis.call('HMGET', job.hash, 'state', 'digest')
  if known[1] then return job.id, known[2], 'id' end
end

-- Returns the time until there is room: by Little's law a lane empties in the time that its oldest entry has waited.
local function patience(depth, wanted)
  local oldest = redis.call('XRANGE', lane, '-', '+', 'COUNT', 1)[1]
  local age = oldest and now - tonumber(oldest[1]:match('^%d+')) or 0
  return math.floor(math.min(60000, math.max(1000, age * wanted / math.max(1, depth))))
end

-- Reading every tenant's depth takes longer than all the rest, so the sum is kept as a count that only grows, by each new
-- job. It is counted again when it shows a full lane, and after a minute. With very many tenants (about 1.2 us each) it may
-- then be half a second old: counting takes at most a twentieth of Redis's time.
local function keep(tenants)
  local packed = string.format('%.0f %.0f %.0f', tenants.count, tenants.counted_again, tenants.forgotten)
  redis.call('SET', held, packed, 'PX', 60000)
end

local function count_again()
  local ids, tenants = redis.call('ZRANGE', ring, 0, -1), {count = 0, forgotten = now + 60000}
  for _, tenant in ipairs(ids) do
    if tenant ~= '' then tenants.count = tenants.count + redis.call('XLEN', lane .. '/' .. tenant) end
  end
  tenants.counted_again = now + math.floor(#ids / 40)
  keep(tenants)
  return tenants
end

local function held_by_tenants()
  if #redis.call('ZRANGE', ring, 0, 0) == 0 then return {count = 0, counted_again = now, forgotten = now + 60000} end
  local packed = redis.pcall('GET', held)
  local count, again, forgotten = (type(packed) == 'string' and packed or ''):match('^(%d+) (%d+) (%d+)$')
  if not count or tonumber(forgotten) <= now then return count_again() end
  return {count = tonumber(count), counted_again = tonumber(again), forgotten = tonumber(forgotten)}
end

-- Returns the count of the tenants' jobs and, if the new jobs have no room in the lane, its depth and their number.
local function room_in_lane()
  local own, tenants = redis.call('XLEN', lane), held_by_tenants()
  if own + tenants.count + #fresh > bound and tenants.counted_again <= now then tenants = count_again() end
  if own + tenants.count + #fresh > bound then return tenants, own + tenants.count, #fresh end
  return tenants
end

-- Returns the depth and the number of new jobs of a tenant that has no room for them.
local function overfull_tenant()
  local of_tenant = {}
  for _, job in ipairs(fresh) do
    if job.tenant ~= '' then of_tenant[job.tenant] = (of_tenant[job.tenant] or 0) + 1 end
  end
  for tenant, wanted in pairs(of_tenant) do
    local own = redis.call('XLEN', lane .. '/' .. tenant)
    if own + wanted > tenant_bound then return own, wanted end
  end
end

local function put(job, tenants)
  if job.tenant == '' then return redis.call('XADD', lane, '*', 'j', job.packed), ARGV[3] end
  local last = redis.call('ZREVRANGE', ring, 0, 0, 'WITHSCORES')[2] or 0
  redis.call('ZADD', ring, 'NX', last + 1, job.tenant)
  tenants.count = tenants.count + 1
  return redis.call('XADD', job.stream, '*', 'j', job.packed), ARGV[3] .. '/' .. job.tenant
end

local at = 5
for i = 5, #ARGV, 7 do
  local job = {id = ARGV[i], digest = ARGV[i + 1], channel = ARGV[i + 3], packed = ARGV[i + 4], event = ARGV[i + 5],
    tenant = ARGV[i + 6]}
  job.hash = KEYS[at]
  at = at + 1
  if ARGV[i + 2] == '1' then job.idem, at = KEYS[at], at + 1 end
  if job.tenant ~= '' then job.stream, at = KEYS[at], at + 1 end
  local id, digest, what = before(job)
  if id and digest ~= job.digest then return {'conflict', id, what} end
  if not id then
    fresh[#fresh + 1] = job
    seen[job.hash] = job
    if job.idem then seen[job.idem] = job end
  end
  ids[#ids + 1] = id or job.id
end

if #fresh == 0 then return ids end
local tenants, depth, wanted = room_in_lane()
if not depth then depth, wanted = overfull_tenant() end
if depth then return {'full', patience(depth, wanted)} end
local rings = false
for _, job in ipairs(fresh) do
  local entry, place = put(job, tenants)
  redis.call('HSET', job.hash, 'state', 'queued', 'lane', place, 'entry', entry, 'seq', 1, 'queued_at', now,
    'digest', job.digest)
  redis.call('PERSIST', job.hash)
  if job.idem then redis.call('SET', job.idem, job.digest .. ' ' .. job.id, 'PX', idempotency_ttl) end
  redis.call('PUBLISH', job.channel, job.event)
  rings = rings or job.tenant ~= ''
end
-- idle workers watch the lane's own stream, not those of its tenants
if rings then redis.call('XADD', bell, 'MAXLEN', 1, '*', 'r', 1) end
if rings then keep(tenants) end
return ids
