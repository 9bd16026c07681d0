"""An encoded file's structure, walked before a decoder reads it: bounds on the work, and metadata left out.

Decoders follow the file's structure. A file of a few kilobytes can keep one busy for minutes: thousands of scans over
the same pixels, millions of empty chunks, strips that all lie in the same place. Besides, Pillow reads metadata in
Python, and some of that is quadratic. So each walk keeps only the parts that make the first image's pixels, and refuses
a file that would take longer than an honest one of the largest size.

- `lean.py`: chooses the walk by the file's first bytes
- `jpeg.py`: scans and segments; `jpeg_frame.py`: the number of blocks that a scan visits
- `png.py`: chunks
- `gif.py`: extension blocks
- `bmp.py`: run-length codes, which Pillow reads in Python
- `tiff.py`: directories; `tiff_strips.py`: strips and tiles
"""

from stoop_worker.images.structure.jpeg import frame_kind
from stoop_worker.images.structure.lean import lean

__all__ = ["frame_kind", "lean"]
