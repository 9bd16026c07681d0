-- Removes delivered endings. KEYS: the outbox. ARGV after the prelude's: the entries.
for i = 4, #ARGV do
  redis.call('XACK', KEYS[1], group, ARGV[i])
  redis.call('XDEL', KEYS[1], ARGV[i])
end
return #ARGV - 3
