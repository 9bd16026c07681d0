"""`stoop bulk`: run one skill on every image of a source and write the answers to a folder.

options.py    the command's options as one value
session.py    one session: checks everything, opens and closes everything, ends the run
run.py        the run: keeps at most a window of rows in flight until the source ends or the user stops it
sources/      reads rows from a folder, a bucket prefix, JSON lines or a table
row.py        one row: an image and the question about it
row_run.py    one row's run: row to job, job to queue, answer to line
budget.py     the limit on failures
output/       writes the lines, and an index of the finished rows
summary.py    `summary.json`, and a table of failure causes with one example each
arguments.py  `run.json`: a folder resumes only with the arguments that it began with
plan.py       the estimate before a run: images, bytes, tokens and time
vectors/      the shards of `stoop bulk-embed`: Parquet or .npy, in a folder or in S3
progress.py   the progress display
port.py       the client interface that a run needs, and its stop signal
"""

__all__: list[str] = []
