-- Lists dead letters without their jobs, which may hold whole images, newest first.
-- KEYS: the dead letters. ARGV: the newest to list (`+` or `(` and a letter), how many.
-- Returns for each letter: its name, job's id, lane, attempt and failure.
local CHUNK = 100
local found, newest, left = {}, ARGV[1], tonumber(ARGV[2])
while left > 0 do
  local letters = redis.call('XREVRANGE', KEYS[1], newest, '-', 'COUNT', math.min(CHUNK, left))
  for _, letter in ipairs(letters) do
    local fields = {}
    for i = 1, #letter[2], 2 do fields[letter[2][i]] = letter[2][i + 1] end
    found[#found + 1] = {letter[1], fields.id or letter[1], fields.lane or '', fields.attempt or '', fields.failure or ''}
  end
  if #letters < math.min(CHUNK, left) then break end
  newest, left = '(' .. letters[#letters][1], left - #letters
end
return found
