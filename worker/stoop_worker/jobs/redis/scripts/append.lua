-- Logs and publishes events of many deliveries of one partition.
-- KEYS: for each delivery its job's hash and log.
-- ARGV after those of the prelude and of `events`, for each delivery: attempt, entry, lane, channel, number of its first
--   event, how many, the events.
-- Returns for each delivery 1, or 0 when this worker does not own it (then nothing was written).
local written, at = {}, 6
for i = 1, #KEYS / 2 do
  local key, log = KEYS[2 * i - 1], KEYS[2 * i]
  local attempt, entry, lane, channel = ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3]
  local first, count = tonumber(ARGV[at + 4]), tonumber(ARGV[at + 5])
  at = at + 6
  written[i] = 0
  if ownership(look_up(key), attempt, entry) == 'owner' then
    redis.call('HSET', key, 'state', 'running', 'worker', worker, 'attempt', attempt, 'entry', entry, 'lane', lane)
    for k = 0, count - 1 do publish_event(key, log, channel, first + k, ARGV[at + k]) end
    redis.call('PEXPIRE', log, log_ttl)
    written[i] = 1
  end
  at = at + count
end
return written
