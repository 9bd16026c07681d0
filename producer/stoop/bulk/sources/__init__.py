"""The sources of rows for a bulk run.

source.py        the interface of every source
open.py          opens the source that the command line names
prefix.py        the images under a prefix in the object store
folder.py        the images under a local folder
jsonl.py         JSON lines: Moondream's and OpenAI's batch formats, even in one file
openai_lines.py  one OpenAI line as a row
each_value.py    one row per question or object, if each image is asked about several
table.py         a column of a CSV or Parquet file
texts.py         texts to embed, several in one job
"""

from stoop.bulk.sources.open import open_source
from stoop.bulk.sources.source import Source

__all__ = ["Source", "open_source"]
