"""The producer's side of the queue on Redis.

connect.py           a redis-py client for one server, the Sentinels' master or a Cluster
calls.py             runs commands and scripts, and translates Redis errors
transport.py         the client's transport: submits by script, reads keys, follows channels
joint_submission.py  jobs of many tasks in one call
subscriptions.py     many channels on one connection; readers learn of every lost message
readers.py           who reads a channel, and what each has not read yet
celery_transport.py  a kombu transport that routes `stoop.*` queues to Stoop's workers
limiter.py           rate limits that all replicas of a gateway share
open_batches.py      the batches that no gateway has finished
scripts/             the Lua scripts
"""

__all__: list[str] = []
