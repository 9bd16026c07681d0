-- Loaded before `take`: counts the claimed jobs of a stream, and shares the claims of a lane among its tenants.
-- A lane's tenants are members of a sorted set; the one whose last turn is longest ago comes first. '' stands for the lane's
-- own stream, which has the jobs without a tenant.

-- Returns the score of the last turn. A score too large to add to was written by another program, and would end the order of
-- turns: then all tenants are numbered again.
local function last_turn(ring)
  local last = tonumber(redis.call('ZREVRANGE', ring, 0, 0, 'WITHSCORES')[2] or 0)
  if last < 2 ^ 50 then return last end
  local tenants = redis.call('ZRANGE', ring, 0, -1)
  for turn, tenant in ipairs(tenants) do redis.call('ZADD', ring, 'XX', turn, tenant) end
  return #tenants
end

-- Returns the number of claimed entries, without those that were given back: these wait.
local function in_flight(stream)
  local pending = redis.pcall('XPENDING', stream, group)
  if pending.err then return 0 end
  local claimed = pending[1]
  for _, holder in ipairs(pending[4] or {}) do
    if holder[1] == GIVEN_BACK then claimed = claimed - tonumber(holder[2]) end
  end
  return claimed
end

-- Returns the tenants in order of their turns, each with the number of its jobs that may run now.
local function in_turn(stream, ring, most, cap)
  local waiting = {}
  for _, tenant in ipairs(redis.call('ZRANGE', ring, 0, 2 * most + 8)) do
    local own = tenant == '' and stream or stream .. '/' .. tenant
    local length, running = on_shared(0, 'XLEN', own), in_flight(own)
    local ready = length - running
    if tenant ~= '' then ready = math.min(ready, cap - running) end
    if tenant ~= '' and (length == 0 or tenant:find('[^%w._:-]')) then
      redis.call('ZREM', ring, tenant)
      if length == 0 then redis.call('DEL', own) end
    else
      waiting[#waiting + 1] = {tenant = tenant, stream = own, ready = ready, count = 0}
    end
  end
  return waiting
end

-- Shares out `most` jobs: one to each tenant, round after round.
local function share_out(waiting, most)
  local given = true
  while given and most > 0 do
    given = false
    for _, one in ipairs(waiting) do
      if most > 0 and one.count < one.ready then
        one.count, most, given = one.count + 1, most - 1, true
      end
    end
  end
end

-- Returns {stream, count} for each tenant that has a turn now.
local function turns(stream, ring, most, cap)
  local last = last_turn(ring)
  redis.call('ZADD', ring, 'NX', last + 1, '')
  local waiting = in_turn(stream, ring, most, cap)
  share_out(waiting, most)
  local chosen, turn = {}, last + 2
  for _, one in ipairs(waiting) do
    if one.count > 0 then chosen[#chosen + 1] = one end
    if one.count > 0 or one.ready <= 0 then
      redis.call('ZADD', ring, 'XX', turn, one.tenant)
      turn = turn + 1
    end
  end
  if redis.call('ZCARD', ring) == 1 then redis.call('DEL', ring) end
  return chosen
end
