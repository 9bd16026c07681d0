-- Lists dead letters without their jobs, which may hold whole images, newest first.
-- KEYS: the dead letters. ARGV: the newest to list (`+` or `(` and a letter), how many.
-- Returns for each letter: its name, job's id, lane, attempt, failure and tenant.
local CHUNK = 100
local found, newest, left = {}, ARGV[1], tonumber(ARGV[2])
while left > 0 do
  local letters = redis.call('XREVRANGE', KEYS[1], newest, '-', 'COUNT', math.min(CHUNK, left))
  for _, letter in ipairs(letters) do
    local fields, id, lane, attempt, failure, tenant = letter[2], letter[1], '', '', '', ''
    for i = 1, #fields, 2 do
      local name = fields[i]
      if name == 'failure' then failure = fields[i + 1]
      elseif name == 'id' then id = fields[i + 1]
      elseif name == 'lane' then lane = fields[i + 1]
      elseif name == 'attempt' then attempt = fields[i + 1]
      elseif name == 'tenant' then tenant = fields[i + 1] end
    end
    found[#found + 1] = {letter[1], id, lane, attempt, failure, tenant}
  end
  if #letters < math.min(CHUNK, left) then break end
  newest, left = '(' .. letters[#letters][1], left - #letters
end
return found
