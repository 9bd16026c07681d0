-- Loaded before `append` and `settle`: how an event is logged and published.
-- ARGV after the prelude's: log_ttl (ms), log_length.
local log_ttl, log_length = ARGV[4], ARGV[5]

-- Logs and publishes one event, once: a number already published belongs to a call whose reply was lost. `had` is what the
-- job's hash says: `seq`, which the caller writes back, and `unlogged`.
-- Only where `logged` is '1' there is a log. One that somebody else wrote to goes. A log with a hole would give the wrong
-- text, so from then on events are only published; the last one, which has the whole answer, is logged in any case, as if
-- the log had expired before.
local function publish_event(key, log, channel, seq, event, had, logged, is_last)
  if seq < (tonumber(had.seq) or 0) then return end
  if logged == '1' and (is_last or not had.unlogged) then
    local _, spoilt = on_own('XADD', log, 'MAXLEN', '~', log_length, string.format('%d-0', seq + 1), 'e', event)
    if spoilt and not is_last then
      had.unlogged = '1'
      redis.call('HSET', key, 'unlogged', 1)
      redis.call('DEL', log)
    end
  end
  had.seq = seq + 1
  redis.call('PUBLISH', channel, event)
end
