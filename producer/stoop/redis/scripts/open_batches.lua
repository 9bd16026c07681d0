-- Adds a batch to the unfinished ones, or removes it.
-- One key holds them all as a JSON object, so that a client needs only the rights to GET and SET.
-- KEYS: the unfinished batches. ARGV: the batch's id; the place of the batch as JSON, or '' if the batch has finished.
local is_json, open = pcall(cjson.decode, redis.call('GET', KEYS[1]) or '{}')
if not is_json or type(open) ~= 'table' then open = {} end
open[ARGV[1]] = ARGV[2] ~= '' and ARGV[2] or nil
redis.call('SET', KEYS[1], cjson.encode(open))
return 1
