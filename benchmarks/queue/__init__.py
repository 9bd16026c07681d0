"""The queue: throughput, latency, depth, Celery.

throughput.py      jobs a second by permits
through_queue.py   the share of the engine's own rate
chat.py            the same for chats
several_gpus.py    one GPU against all of a host, and the death of one
lane_latency.py    interactive latency beside bulk jobs
flood.py           bulk captions from processes of their own
depth.py           costs and waits as the queue gets deeper
telemetry_cost.py  the cost of metrics and of traces
telemetry_workers.py  the workers that it compares
celery_dialect.py  CPU time of jobs from Celery
bench.py           a Redis, a client, and a worker without an engine
worker.py          a worker process for the benchmarks
closed_loop.py     keeps jobs in flight, and records each
kill_one.py        kills a worker that holds jobs, and follows them
instant_worker.py  a worker whose engine answers at once
processes.py       CPU time and cores of processes
"""

__all__: list[str] = []
