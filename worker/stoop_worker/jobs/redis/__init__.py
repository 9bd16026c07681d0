"""The broker's port on Redis Streams.

broker.py   the broker: one script call per partition, model and method, so that each is all or nothing
claims.py   the deliveries that the worker holds, and how many more it may claim
watch.py    waits for jobs with blocking reads, without claiming any
client.py   runs commands and scripts, and separates passing errors from lasting ones
connections.py  the connections to one server, each used by one command at a time
connect.py  a redis-py client for one server, the Sentinels' master or a Cluster
config.py   the address of the queue, and the part of it that this worker serves
history.py  the attempts of a job that ended with their worker, for traces
values.py   script replies to deliveries, outcomes to script arguments
scripts/    the Lua scripts; `client.py` lists the files that make up each

    take.lua         claims jobs for a worker, and puts due retries back into their lanes
    append.lua       writes the events of jobs that this worker owns
    settle.lua       ends deliveries: stores the result and removes the entry, or schedules a retry
    extend.lua       renews a worker's lease, and finds its jobs that were cancelled or lost
    reclaim.lua      takes jobs over from workers whose lease has run out
    leave.lua        gives a worker's lease back
    prelude.lua      shared by all of these: times, checked commands, the way back into a lane
    though_full.lua  shared by those that must run although Redis is full
    entries.lua      shared by `take` and `reclaim`: reads an entry, and claims it
    tenants.lua      part of `take`: the turns of the tenants of a lane
    quarantine.lua   part of `take`: the workers that run quarantined jobs
    ownership.lua    checks that a delivery still belongs to this worker
    events.lua       logs and publishes one event
    outbox_take.lua  claims endings for Celery
    outbox_drop.lua  removes those that Celery has received
    revoke.lua       cancels a job that Celery revoked; the client's own is `cancel.lua` beside the producer
"""

__all__: list[str] = []
