-- Claims at most `permits` jobs of one model in one partition: from the first lane to the last, with a minimum share for the
-- last; or only jobs of the quarantine.
-- KEYS: the lanes' streams in order, then those of the quarantine: small batch, alone.
-- ARGV after those of the prelude and of `entries`: permits, share, whether the reply of an earlier take was lost ('1'),
--   the jobs that this worker holds ('idle': none, 'busy', or 'small': a small batch of the quarantine), whether the
--   quarantine comes before the lanes ('1') or only if they are empty, the longest time in the quarantine (ms), the size of
--   a small batch, most jobs in flight of a tenant in a lane, most jobs to claim from all lanes after the first, and then
--   the entries that this worker knows it holds, each as `lane entry`.
-- Returns one flat list, because Redis before 7 sends each nested one in a packet of its own: now, when the next delayed job
--   is due (0: none), 1 if this worker must finish its jobs first, how many keys are spoilt, then the last known entry of
--   each stream and of the bell, the spoilt keys, and the fields of each delivery.

-- A full Redis refuses a first write that may take memory, even if it changes nothing: this key never exists. So nothing
-- is claimed then, and only the jobs in flight still have results to store.
redis.call('ZADD', stem .. 'live:/', 'XX', 0, '-')

local permits, share, reply_lost, occupancy = tonumber(ARGV[5]), tonumber(ARGV[6]), ARGV[7] == '1', ARGV[8]
local quarantine_first, quarantine_ttl, batch, cap = ARGV[9] == '1', tonumber(ARGV[10]), tonumber(ARGV[11]), tonumber(ARGV[12])
local most_behind, NEVER = tonumber(ARGV[13]), '18446744073709551615-18446744073709551615'
local lanes, small, alone, delayed = #KEYS - 2, #KEYS - 1, #KEYS, stem .. 'delayed'
local found, quiet, closed, total = {}, {}, {}, 0
-- a later due time is checked again after this time (ms)
local LONGEST_LOOK = 3600000
local kept = {}

local function name(stream) return stream:sub(#stem + #'jobs:' + 1) end

-- Keeps a delivery once: a cancelled job may be found again in its lane, in the same call.
local function keep(lane, delivery)
  local key = delivery and delivery[1] .. ' ' .. delivery[2]
  if delivery and not kept[key] then
    kept[key] = true
    found[lane][#found[lane] + 1] = delivery
    total = total + 1
  end
end

-- Claims entries that no worker has claimed. Redis forgets a group with its stream; every later entry is new, so the new
-- group starts at 0.
local function unclaimed(stream, most)
  local reply = redis.pcall('XREADGROUP', 'GROUP', group, worker, 'COUNT', most, 'STREAMS', stream, '>')
  if reply and reply.err then
    if reply.err:find('NOGROUP', 1, true) then
      redis.call('XGROUP', 'CREATE', stream, group, '0', 'MKSTREAM')
    elseif is_spoilt(reply) then
      spoilt[stream] = true
      return {}
    end
    reply = redis.call('XREADGROUP', 'GROUP', group, worker, 'COUNT', most, 'STREAMS', stream, '>')
  end
  return reply and reply[1][2] or {}
end

-- Claims the entries that were given back, which are the oldest of a stream.
local function given_back(stream, most)
  local pending = redis.pcall('XPENDING', stream, group, '-', '+', most, GIVEN_BACK)
  local entries = {}
  for _, held in ipairs(pending.err and {} or pending) do
    local entry = entry_at(stream, held[1])
    if entry then
      redis.call('XCLAIM', stream, group, worker, 0, held[1], 'JUSTID')
      entries[#entries + 1] = entry
    else
      redis.call('XACK', stream, group, held[1])
    end
  end
  return entries
end

-- Claims from one stream. Duplicates, and jobs claimed out of turn, take no permit, so it reads on, but only up to a bound:
-- a lane full of them must not block Redis.
local function fill_from(lane, stream, most)
  local full, left = total + most, 4 * most + 64
  for _, entry in ipairs(given_back(stream, most)) do keep(lane, claim(name(stream), stream, entry[1], entry[2])) end
  while left > 0 do
    local room = full - total
    if room <= 0 then return end
    local entries = unclaimed(stream, room)
    left = left - #entries
    for _, entry in ipairs(entries) do keep(lane, claim(name(stream), stream, entry[1], entry[2], reply_lost)) end
    if #entries < room then return end
  end
end

local function fill(lane, most)
  if most <= 0 or quiet[lane] then return end
  local stream = KEYS[lane]
  local ring = stem .. 'tenants:' .. name(stream)
  if on_shared(0, 'ZCARD', ring) == 0 then return fill_from(lane, stream, most) end
  for _, one in ipairs(turns(stream, ring, most, cap)) do fill_from(lane, one.stream, one.count) end
end

-- Claims jobs that were cancelled while they waited, at any depth, even in a paused lane. They do not run, so the order of
-- the lane does not matter. In the quarantine they wait for their turn, because nothing may be claimed beside it.
local function claim_cancelled()
  local popped = on_shared({}, 'ZPOPMIN', stem .. 'cancelled', permits - total)
  for i = 1, #popped, 2 do
    local id = popped[i]
    local had = look_up(stem .. 'job:' .. id)
    if had.cancel and had.state == 'queued' and had.lane and had.entry and not is_quarantine(had.lane) then
      local stream = stem .. 'jobs:' .. had.lane
      local entry = entry_at(stream, had.entry)
      if entry then
        redis.pcall('XGROUP', 'CREATE', stream, group, '0') -- fails if it exists; only a lane that was never served has none
        redis.call('XCLAIM', stream, group, worker, 0, had.entry, 'FORCE', 'JUSTID')
        keep(1, claim(had.lane, stream, entry[1], entry[2]))
      end
    end
  end
end

-- Returns the entry of a delayed job. If it cannot be read, the job is empty and will end as malformed.
local function unparked(id, parked)
  local readable, fields = pcall(cmsgpack.unpack, parked)
  local whole = readable and type(fields) == 'table' and #fields >= 2 and #fields % 2 == 0
  for _, part in ipairs(whole and fields or {}) do whole = whole and type(part) == 'string' end
  return with_id(whole and fields or {'j', ''}, id)
end

local function promote_due()
  local first_lane = name(KEYS[1]):sub(model and #model + 2 or 1)
  for _, id in ipairs(on_shared({}, 'ZRANGEBYSCORE', delayed, '-inf', now, 'LIMIT', 0, permits)) do
    local key = stem .. 'job:' .. id
    local had, parked = look_up(key), redis.call('HGET', key, 'parked')
    redis.call('ZREM', delayed, id)
    if parked or had.state == 'delayed' then
      had.lane = had.lane or of_model(had.model, first_lane)
      if requeue(key, had, unparked(id, parked or '')) then
        redis.call('HDEL', key, 'parked')
      else
        redis.call('ZADD', delayed, now + LONGEST_LOOK, id)
      end
    end
  end
end

-- Finds claims whose reply never arrived: they are pending for this worker, which does not know them.
local function find_again(lane, stream, held)
  local pending = redis.pcall('XPENDING', stream, group, '-', '+', 10000, worker)
  if pending.err then return end -- no group, so nothing is pending
  for _, claimed in ipairs(pending) do
    if total >= permits then return end
    if not held[name(stream) .. ' ' .. claimed[1]] then
      local entry = entry_at(stream, claimed[1])
      if entry then
        keep(lane, claim(name(stream), stream, entry[1], entry[2], reply_lost))
      else
        redis.call('XACK', stream, group, claimed[1])
      end
    end
  end
end

local function find_all_again()
  local held = {}
  for i = 14, #ARGV do held[ARGV[i]] = true end
  find_again(small, KEYS[small], held)
  find_again(alone, KEYS[alone], held)
  if total > 0 then return end -- nothing runs beside them
  for lane = 1, lanes do
    find_again(lane, KEYS[lane], held)
    for _, tenant in ipairs(on_shared({}, 'ZRANGE', stem .. 'tenants:' .. name(KEYS[lane]), 0, -1)) do
      if tenant ~= '' then find_again(lane, KEYS[lane] .. '/' .. tenant, held) end
    end
  end
end

-- Returns how many more jobs may be claimed from a lane.
local function room(lane)
  if lane == 1 then return permits - total end
  return math.min(permits - total, most_behind - (total - #found[1]))
end

local function fill_lanes()
  fill(lanes, math.min(share, room(lanes)))
  for lane = 1, lanes do fill(lane, room(lane)) end
  -- new jobs there cannot be claimed before another job ends
  for lane = 2, lanes do closed[lane] = room(lane) <= 0 and permits > total end
end

-- Returns the part of the quarantine that has unclaimed jobs.
local function quarantined()
  for _, lane in ipairs({small, alone}) do
    local length = on_shared(0, 'XLEN', KEYS[lane])
    if length > 0 and length > in_flight(KEYS[lane]) then return lane end
  end
end

-- Returns how many workers it takes to run the whole quarantine at once.
local function workers_wanted()
  return math.ceil(on_shared(0, 'XLEN', KEYS[small]) / batch) + on_shared(0, 'XLEN', KEYS[alone])
end

local function fill_from_quarantine(lane)
  enter_quarantine(now + quarantine_ttl)
  fill_from(lane, KEYS[lane], lane == small and math.min(permits, batch) or 1)
end

-- Returns whether this worker must finish its jobs before it claims more.
local function fill_all()
  if occupancy == 'small' then
    fill_from(small, KEYS[small], permits - total)
    return false
  end
  local apart = quarantined()
  if apart and not is_wanted(workers_wanted()) then
    quiet[small], quiet[alone], apart = true, true, nil
  end
  if apart and quarantine_first then
    enter_quarantine(now + quarantine_ttl)
    if occupancy == 'idle' and total == 0 then fill_from_quarantine(apart) end
    return total == 0 and occupancy == 'busy'
  end
  leave_quarantine()
  fill_lanes()
  if apart and total == 0 and occupancy == 'idle' then fill_from_quarantine(apart) end
  return false
end

-- Returns the entry after which a worker looks for news: the last claimed one or, for a stream that may not be claimed from
-- now, the last one.
local function news(lane)
  if closed[lane] then return NEVER end
  if quiet[lane] then
    local facts = redis.pcall('XINFO', 'STREAM', KEYS[lane])
    return facts.err and '0-0' or field(facts, 'last-generated-id')
  end
  local groups = redis.pcall('XINFO', 'GROUPS', KEYS[lane])
  for _, facts in ipairs(groups) do
    if field(facts, 'name') == group then return field(facts, 'last-delivered-id') end
  end
  return '0-0'
end

for lane = 1, #KEYS do found[lane] = {} end
if redis.call('EXISTS', stem .. 'paused') == 1 then
  for lane = 1, lanes do quiet[lane] = on_inner('SISMEMBER', stem .. 'paused', name(KEYS[lane])) == 1 end
end
promote_due()
if reply_lost then find_all_again() end
local apart_again = #found[small] + #found[alone] > 0
if occupancy ~= 'small' and not apart_again and permits > total then claim_cancelled() end
local holding = permits > total and not apart_again and fill_all()

local first = on_shared({}, 'ZRANGE', delayed, 0, 0, 'WITHSCORES')
local due = first[2] and math.max(1, math.min(tonumber(first[2]), now + LONGEST_LOOK)) or 0
local reply = {now, due, holding and 1 or 0, 0}
local function add(value) reply[#reply + 1] = value end
for lane = 1, #KEYS do add(news(lane)) end
local bell = on_own('XREVRANGE', stem .. 'bell', '+', '-', 'COUNT', 1)[1]
add(bell and bell[1] or '0-0')
for key in pairs(spoilt) do
  add(key)
  reply[4] = reply[4] + 1
end
for lane = 1, #KEYS do
  for _, delivery in ipairs(found[lane]) do
    for _, value in ipairs(delivery) do add(value) end
  end
end
return reply
