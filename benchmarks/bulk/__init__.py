"""Memory and crash safety of `stoop bulk`.

run.py      the command: peak memory by rows, and runs that are killed
memory.py   one run in memory, in its own process
process.py  `stoop bulk` as a process that can be killed, and images for it
"""

__all__: list[str] = []
