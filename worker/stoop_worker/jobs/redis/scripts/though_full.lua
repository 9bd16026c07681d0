-- Loaded after the prelude by scripts that must run even if Redis's memory is full: they renew leases, and end running jobs.
-- `take` does the opposite.
-- Once a script has written, Redis runs it to its end. Removing a key that never exists is a write that takes no memory.
redis.call('DEL', stem .. 'live:/')
