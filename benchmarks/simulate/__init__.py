"""A model of the queue in time: producers, partitions of Redis, workers.

model.py      the simulation
arrivals.py   jobs with their times: steady, or over a day
check.py      the model against three real workers
capacity.py   up to 10^9 jobs a day: a table and a picture
costs.py      one job's costs, as measured
"""

__all__: list[str] = []
