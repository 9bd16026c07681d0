"""The formats: what each writes, what it needs to know of images, and how it names them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import Final

from producer.export.coco import write_coco
from producer.export.cvat import write_cvat
from producer.export.dataset import Dataset
from producer.export.fiftyone import write_fiftyone
from producer.export.label_studio import write_label_studio
from producer.export.naming import flat, identity, sample_key, stem
from producer.export.webdataset import write_webdataset
from producer.export.yolo import write_yolo

__all__ = ["FORMATS", "Format", "FormatName", "Sizes"]


class Sizes(StrEnum):
    """Whether a format needs the sizes of images."""

    NEEDED = "needed"  # an image without one is left out
    WELCOME = "welcome"  # told where they are known
    UNUSED = "unused"


class FormatName(StrEnum):
    """What `stoop export` can write."""

    COCO = "coco"
    YOLO = "yolo"
    LABEL_STUDIO = "label-studio"
    FIFTYONE = "fiftyone"
    CVAT = "cvat"
    PARQUET = "parquet"
    WEBDATASET = "webdataset"


@dataclass(frozen=True, slots=True)
class Format:
    """One format. `suffix` is of a single file, None where only a folder will do; `folder` says whether one will."""

    write: Callable[[Dataset, Path], None]
    sizes: Sizes
    suffix: str | None = None
    folder: bool = True
    rename: Callable[[str], str] = identity
    distinct: Callable[[str], str] = identity


FORMATS: Final[Mapping[FormatName, Format]] = MappingProxyType(
    {
        FormatName.COCO: Format(write_coco, Sizes.NEEDED, ".json"),
        FormatName.YOLO: Format(write_yolo, Sizes.UNUSED, distinct=stem),
        FormatName.LABEL_STUDIO: Format(write_label_studio, Sizes.WELCOME, ".json"),
        FormatName.FIFTYONE: Format(write_fiftyone, Sizes.NEEDED, rename=flat),
        FormatName.CVAT: Format(write_cvat, Sizes.NEEDED, ".xml", folder=False),
        FormatName.WEBDATASET: Format(write_webdataset, Sizes.UNUSED, distinct=sample_key),
    }
)
"""Those that are about images; Parquet, which is about results, is written by `producer.export.parquet`."""
