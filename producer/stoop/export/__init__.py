"""Results in the formats of annotation tools and training code.

    run.py          one export, from its results to its file or folder
    rows.py         reads the results, one row a line
    gathered.py     groups the rows by image, on disk, so that memory is bounded
    images.py       finds the images: nowhere, in a folder, or in the object store
    objects.py      reads objects, or their first bytes, from the store
    ahead.py        makes slow calls ahead of time in threads
    pixels.py       an image's size in pixels, from its first bytes
    naming.py       safe file names for images
    orientation.py  moves a model's boxes and points into the frame of a rotated image
    geometry.py     clips a model's boxes and points to the image
    formats/        one writer per format
    report.py       the counts, and the list of everything left out

Only the labels of all rows are held in memory.
"""

from stoop.export.formats.registry import FormatName
from stoop.export.report import Report
from stoop.export.run import export

__all__ = ["FormatName", "Report", "export"]
