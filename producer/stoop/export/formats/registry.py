"""The registry of formats: each one's writer, its need for image sizes, and its naming of images."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import Final

from stoop.export.formats.coco import write_coco
from stoop.export.formats.cvat import write_cvat
from stoop.export.formats.dataset import Dataset
from stoop.export.formats.fiftyone import write_fiftyone
from stoop.export.formats.label_studio import write_label_studio
from stoop.export.formats.webdataset import write_webdataset
from stoop.export.formats.yolo import write_yolo
from stoop.export.naming import flat, identity, sample_key, stem

__all__ = ["FORMATS", "Format", "FormatName", "Sizes"]


class Sizes(StrEnum):
    """A format's need for the sizes of images."""

    NEEDED = "needed"  # an image without one is left out
    WELCOME = "welcome"  # written if known
    UNUSED = "unused"


class FormatName(StrEnum):
    """The formats that `stoop export` can write."""

    COCO = "coco"
    YOLO = "yolo"
    LABEL_STUDIO = "label-studio"
    FIFTYONE = "fiftyone"
    CVAT = "cvat"
    PARQUET = "parquet"
    WEBDATASET = "webdataset"
    TXT = "txt"
    JSON = "json"
    SRT = "srt"
    VTT = "vtt"


@dataclass(frozen=True, slots=True)
class Format:
    """One format. `suffix` is that of a single file, None if only a folder works; `folder` is True if one works."""

    write: Callable[[Dataset, Path], None]
    sizes: Sizes
    suffix: str | None = None
    folder: bool = True
    rename: Callable[[str], str] = identity
    distinct: Callable[[str], str] = identity


FORMATS: Final[Mapping[FormatName, Format]] = MappingProxyType(
    {
        FormatName.COCO: Format(write_coco, Sizes.NEEDED, ".json"),
        FormatName.YOLO: Format(write_yolo, Sizes.WELCOME, distinct=stem),
        FormatName.LABEL_STUDIO: Format(write_label_studio, Sizes.WELCOME, ".json"),
        FormatName.FIFTYONE: Format(write_fiftyone, Sizes.NEEDED, rename=flat),
        FormatName.CVAT: Format(write_cvat, Sizes.NEEDED, ".xml", folder=False),
        FormatName.WEBDATASET: Format(write_webdataset, Sizes.UNUSED, distinct=sample_key),
    }
)
"""Those that are about images. Parquet is about results, and the formats of `stoop.subtitles` about transcripts."""
