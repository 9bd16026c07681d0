-- Counts the jobs that tenants have in lanes, waiting and in flight together.
-- KEYS: for each lane its stream and its tenants. ARGV: the most tenants to count in a lane.
-- Returns for each lane {tenant, jobs, tenant, jobs...}.
local lanes = {}
for i = 1, #KEYS, 2 do
  local counts = {}
  for _, tenant in ipairs(redis.call('ZRANGE', KEYS[i + 1], 0, ARGV[1] - 1)) do
    -- the empty one stands for jobs without a tenant, which are in the lane's own stream
    if tenant ~= '' then
      counts[#counts + 1] = tenant
      counts[#counts + 1] = redis.call('XLEN', KEYS[i] .. '/' .. tenant)
    end
  end
  lanes[#lanes + 1] = counts
end
return lanes
