"""CPU time and memory of a worker's front.

run.py         CPU time a job, by thread
worker.py      its worker, which reports its CPU time
memory.py      memory of large images
engine.py      the engine of both, which answers at once or at a steady rate
recordings.py  CPU time of decoding audio and of its features, by format
hostile_recordings.py  ends and times of hostile files
"""

__all__: list[str] = []
