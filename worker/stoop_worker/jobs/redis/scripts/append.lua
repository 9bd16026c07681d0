-- Logs and publishes events of many deliveries of one partition.
-- KEYS: for each delivery its job's hash and log.
-- ARGV after those of the prelude and of `events`, for each delivery: attempt, entry, lane, channel, whether its events are
--   logged ('1'), number of its first event, how many, the events.
-- Returns for each delivery 1, or 0 when this worker does not own it (then nothing was written).

-- Returns the fields of the hash about the job's events, or nil if this worker does not own the job. Nearly always the hash
-- names this very delivery as running, and then no other field is read or written.
local function events_of(key, attempt, entry, lane)
  local found = on_own('HMGET', key, 'state', 'worker', 'attempt', 'entry', 'seq', 'unlogged')
  if found[1] == 'running' and found[2] == worker and found[3] == attempt and found[4] == entry then
    return {seq = found[5], unlogged = found[6] or nil}
  end
  local had = look_up(key)
  if ownership(had, attempt, entry) ~= 'owner' then return nil end
  redis.call('HSET', key, 'state', 'running', 'worker', worker, 'attempt', attempt, 'entry', entry, 'lane', lane)
  return had
end

local written, at = {}, 6
for i = 1, #KEYS / 2 do
  local key, log = KEYS[2 * i - 1], KEYS[2 * i]
  local attempt, entry, lane, channel, logged = unpack(ARGV, at, at + 4)
  local first, count = tonumber(ARGV[at + 5]), tonumber(ARGV[at + 6])
  at = at + 7
  written[i] = 0
  local had = events_of(key, attempt, entry, lane)
  if had then
    for k = 0, count - 1 do publish_event(key, log, channel, first + k, ARGV[at + k], had, logged) end
    redis.call('HSET', key, 'seq', had.seq or 0)
    if logged == '1' then redis.call('PEXPIRE', log, log_ttl) end
    written[i] = 1
  end
  at = at + count
end
return written
