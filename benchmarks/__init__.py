"""Benchmarks of Stoop. They check answers before they time anything; PERFORMANCE.md has the figures.

accuracy/   accuracy of the demo's model
bulk/       memory and crash safety of `stoop bulk`
engine/     speed and memory of the engine alone
front/      CPU time and memory of a worker's front
gateway/    the gateway under load
kernels/    every kernel against the library call it replaces
queue/      the queue: throughput, latency, depth, Celery
client.py   the settings of a client of the servers that a benchmark starts
energy.py   a GPU's energy
figures.py  sums up records, and writes figures with their machine
gpu.py      runs the GPU's benchmarks one after another within a time
instant_engine.py  an engine without a model, which answers at once
instructions.py    counts the instructions of a process
report.py   figures as tables and plots
"""

__all__: list[str] = []
