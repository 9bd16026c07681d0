"""Results in the formats of annotation tools and training code.

A row is read (`rows`), gathered with all others about its image on disk (`gathered`), its image named and measured
(`dataset`, `images`, `pixels`), and all of one image written (`coco`, `yolo`, …). Nothing is held for all rows but
their labels.
"""

from producer.export.formats import FormatName
from producer.export.report import Report
from producer.export.run import export

__all__ = ["FormatName", "Report", "export"]
