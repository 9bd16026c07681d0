"""`stoop demo`: a burst of jobs through a real Redis, a real S3 server and a real worker.

run.py             the demo from start to end
burst.py           the jobs
pictures.py        the pictures, drawn with known contents
check.py           checks each answer against its picture
recordings.py      speech with known words
neighbours.py      texts with known meanings
board.py           the live display of every job, and the final table
montage.py         all pictures with their answers on one sheet
embedded.py        a Redis and an S3 server as child processes; the tests use them too
worker_process.py  a worker as a child process
child_server.py    starts, awaits and ends a child process
"""

from stoop.demo.run import run_demo

__all__ = ["run_demo"]
