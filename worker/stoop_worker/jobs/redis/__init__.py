"""The broker's port on Redis Streams.

broker.py   the broker: one script call per partition, model and method, so that each is all or nothing
claims.py   the deliveries that the worker holds, and how many more it may claim
watch.py    waits for jobs with blocking reads, without claiming any
client.py   one connection: loads the scripts, and separates passing errors from lasting ones
connect.py  a redis-py client for one server, the Sentinels' master or a Cluster
config.py   the address of the queue, and the part of it that this worker serves
values.py   script replies to deliveries, outcomes to script arguments
scripts/    the Lua scripts
"""

__all__: list[str] = []
