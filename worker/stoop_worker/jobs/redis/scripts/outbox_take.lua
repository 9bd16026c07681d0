-- Takes endings for Celery from the outbox: first those that dead workers held, then the unclaimed ones.
-- KEYS: the outbox. ARGV after the prelude's: most, whether the reply of an earlier call was lost ('1'), and then the
--   entries that this worker knows it holds.
-- Returns for each ending: its entry, the ending, 1 if a dead worker may have delivered it.
local stream, most, reply_lost = KEYS[1], tonumber(ARGV[4]), ARGV[5] == '1'
local found, held = {}, {}
for i = 6, #ARGV do held[ARGV[i]] = true end

local function keep(entry, fields, taken_over)
  if fields then
    found[#found + 1] = {entry, fields[2], taken_over}
  else
    redis.call('XACK', stream, group, entry)
  end
end

local function take_from(name)
  for _, pending in ipairs(redis.call('XPENDING', stream, group, '-', '+', most - #found, name)) do
    local entry = pending[1]
    if not held[entry] then
      redis.call('XCLAIM', stream, group, worker, 0, entry, 'JUSTID')
      local there = redis.call('XRANGE', stream, entry, entry)[1]
      keep(entry, there and there[2], 1)
    end
  end
end

on_inner('XLEN', stream) -- removes a key that is not a stream
local made = redis.pcall('XGROUP', 'CREATE', stream, group, '0', 'MKSTREAM')
if made.err and not made.err:find('BUSYGROUP', 1, true) then return made end
for _, facts in ipairs(redis.call('XINFO', 'CONSUMERS', stream, group)) do
  local name = facts[2]
  if #found < most and (name == worker and reply_lost or name ~= worker and not lives(name)) then
    take_from(name)
    if name ~= worker and #redis.call('XPENDING', stream, group, '-', '+', 1, name) == 0 then
      redis.call('XGROUP', 'DELCONSUMER', stream, group, name)
    end
  end
end
if #found < most then
  local reply = redis.call('XREADGROUP', 'GROUP', group, worker, 'COUNT', most - #found, 'STREAMS', stream, '>')
  for _, entry in ipairs(reply and reply[1][2] or {}) do keep(entry[1], entry[2], 0) end
end
return found
