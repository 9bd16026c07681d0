-- Sends dead letters of one partition back to their lanes, as if each had just been submitted: same id, no attempts.
-- KEYS: the dead letters, then for each letter: its lane's stream, its job's hash, result and log.
-- ARGV: for each letter: the letter, the job's id, the lane, the job's channel, the first event.
-- Returns for each letter 1; 0 if it does not exist; 2 if its job lives, because it was submitted again.
local dead = KEYS[1]
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local TOLD = {id = true, lane = true, attempt = true, crashes = true, worker = true, failure = true, queued_at = true,
  started_at = true}
local LIVES = {queued = true, running = true, delayed = true, completed = true}

-- Returns the original entry, without the fields that workers have added.
local function entry_fields(letter, id)
  local fields = {'id', id}
  for i = 1, #letter[2], 2 do
    if not TOLD[letter[2][i]] then
      fields[#fields + 1] = letter[2][i]
      fields[#fields + 1] = letter[2][i + 1]
    end
  end
  return fields
end

-- Removes the times at which attempts were claimed and lost; a job has few of them.
local function forget_attempts(job)
  local attempts = tonumber(redis.call('HGET', job, 'attempt') or 0) or 0
  for i = 0, math.min(attempts, 1000) do redis.call('HDEL', job, 'claimed:' .. i, 'lost:' .. i) end
end

local function redrive(letter, keys, id, lane)
  forget_attempts(keys.job)
  local entry = redis.call('XADD', keys.lane, '*', unpack(entry_fields(letter, id)))
  redis.call('HDEL', keys.job, 'attempt', 'crashes', 'spared', 'worker', 'home', 'cancel', 'parked', 'started_at',
    'finished_at', 'letter', 'unlogged')
  redis.call('HSET', keys.job, 'state', 'queued', 'lane', lane, 'entry', entry, 'seq', 1, 'queued_at', now)
  redis.call('PERSIST', keys.job)
  redis.call('DEL', keys.result, keys.log)
  redis.call('XDEL', dead, letter[1])
end

local done = {}
for i = 1, (#KEYS - 1) / 4 do
  local k, a = 4 * i - 2, 5 * i - 4
  local keys = {lane = KEYS[k], job = KEYS[k + 1], result = KEYS[k + 2], log = KEYS[k + 3]}
  local letter = redis.call('XRANGE', dead, ARGV[a], ARGV[a])[1]
  local state = redis.call('HGET', keys.job, 'state')
  if not letter then
    done[i] = 0
  elseif state and LIVES[state] then
    done[i] = 2
  else
    redrive(letter, keys, ARGV[a + 1], ARGV[a + 2])
    redis.call('PUBLISH', ARGV[a + 3], ARGV[a + 4])
    done[i] = 1
  end
end
return done
