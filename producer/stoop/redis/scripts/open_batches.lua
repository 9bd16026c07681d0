-- Adds a batch to the unfinished ones, or takes it out.
-- One key holds them all as a JSON object, so that a client needs no right but GET and SET.
-- KEYS: the unfinished batches. ARGV: the batch's id; its tenant as JSON, or '' if the batch has finished.
local open = cjson.decode(redis.call('GET', KEYS[1]) or '{}')
open[ARGV[1]] = ARGV[2] ~= '' and ARGV[2] or nil
redis.call('SET', KEYS[1], cjson.encode(open))
return 1
