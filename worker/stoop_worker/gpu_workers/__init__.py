"""`stoop worker --gpus`: one whole worker for each GPU of this host, under one parent without a model.

devices.py      the GPUs that the option names
device_lock.py  the lock that a worker holds on its GPU
member.py       one worker's process: started, watched, started again
settings.py     the environment of each worker
health.py       the probes and the ready file of all workers together
metrics.py      the metrics of all workers together
parent.py       runs the workers until a signal, and drains them
program.py      the program of one worker, tied to its parent
"""

__all__: list[str] = []
