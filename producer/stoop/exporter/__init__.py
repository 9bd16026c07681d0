"""`stoop exporter`: the queue's figures for Prometheus, read from Redis, so they are there without any worker.

options.py  the options of the command
reader.py   reads the queue, at most once a second
metrics.py  every metric of this process
server.py   serves the metrics over HTTP until a signal
"""

__all__: list[str] = []
