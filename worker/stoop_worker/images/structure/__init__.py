"""An encoded file's structure, walked before a decoder reads it: bounds on the work, and metadata left out.

Decoders follow what a file says. Some files of a few kilobytes say enough to keep one busy for minutes: thousands of
scans over the same pixels, millions of empty chunks, strips that all lie in the same place. Pillow reads metadata in
Python besides, and this is quadratic in places. So each walk gives back only what makes the first image's pixels, and
refuses what would take longer than an honest file of the largest size.

- `lean.py`: chooses the walk by the file's first bytes
- `jpeg.py`: scans and segments; `jpeg_frame.py`: how many blocks a scan visits
- `png.py`: chunks
- `gif.py`: extension blocks
- `bmp.py`: run-length codes, which Pillow reads in Python
- `tiff.py`: directories; `tiff_strips.py`: strips and tiles
"""

from stoop_worker.images.structure.lean import lean

__all__ = ["lean"]
