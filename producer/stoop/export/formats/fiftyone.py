"""FiftyOne's `COCODetectionDataset`: `labels.json`, and `data/` with the images that were fetched.

Local images stay in place: their `file_name` is an absolute path, which FiftyOne accepts. Points are in
`keypoints.json` and captions in `captions.json`, in COCO's format.
"""

from pathlib import Path
from typing import Final

from stoop.export.formats.coco import write_files
from stoop.export.formats.copies import Copies
from stoop.export.formats.dataset import Dataset
from stoop.export.gathered import ImageEntry

__all__ = ["write_fiftyone"]

_FILES: Final = {"boxes": "labels.json", "points": "keypoints.json", "captions": "captions.json"}


def write_fiftyone(dataset: Dataset, out: Path) -> None:
    """Write the folder. Missing images raise nothing: they are left out and listed."""
    data = out / "data"
    data.mkdir(parents=True)
    copies = Copies(dataset, data, local=False)
    for _ in dataset.each(copies.place):
        pass

    def file_name(entry: ImageEntry) -> str:
        inline = entry.address.startswith("data:")
        path = dataset.images.path(entry.address) if dataset.images.files and not inline else None
        return entry.name if path is None else str(path)

    write_files(dataset, {kind: out / name for kind, name in _FILES.items()}, file_name=file_name)
