"""The output folder of a bulk run.

output_folder.py  the folder: writes each row's line once, flushes and syncs
line.py           one line: an answer in `results-*.jsonl`, or a failure in `errors.jsonl`
index.py          the index of finished rows, an SQLite file
recovery.py       reopens a folder: cuts off torn lines and brings the index up to date
summary.py        `summary.json`, and a table of failure causes with one example each
"""

__all__: list[str] = []
