"""The output folder of a bulk run.

output_folder.py  the folder: writes each row's line once, flushes and syncs
line.py           one line: an answer in `results-*.jsonl`, or a failure in `errors.jsonl`
index.py          the index of finished rows, an SQLite file
archive.py        the port to the place of full shards, if they do not stay here
recovery.py       reopens a folder: cuts off torn lines and brings the index up to date
"""

__all__: list[str] = []
