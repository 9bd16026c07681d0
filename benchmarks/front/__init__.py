"""CPU time and memory of a worker's front.

run.py          CPU time a job, by thread
engine.py       its engine, which answers at once
worker.py       its worker, which reports its CPU time
memory.py       memory of large images
slow_engine.py  its engine, which is slow
recordings.py   CPU time of decoding audio and of its features, by format
"""

__all__: list[str] = []
