-- Loaded before `append` and `settle`: logs and publishes an event.
-- ARGV after the prelude's: log_ttl (ms), log_length.
local log_ttl, log_length = ARGV[4], ARGV[5]

-- Logs and publishes one event, once: a number already published belongs to a call whose reply was lost. `had` has the
-- fields of the job's hash; the caller writes its `seq` back.
-- There is a log only if `logged` is '1'. A log that another program has written to is deleted. A log with a gap would give
-- the wrong text, so later events are only published. The last one, which has the whole answer, is logged in any case, as if
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
