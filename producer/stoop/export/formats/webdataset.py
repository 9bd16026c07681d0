"""WebDataset: tar shards in which an image and its JSON share a name, next to each other.

The JSON has the image's address, its size and orientation, and the results about it as the model gave them: in the
frame of the pixels as they are stored. Names have no dot except the one before their suffix, because readers cut them
at the first.
"""

import contextlib
import io
import tarfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any, Final

import msgspec

from stoop.errors import ImageUnreadable
from stoop.export.formats.annotated import Annotated
from stoop.export.formats.dataset import Dataset
from stoop.export.naming import IMAGE_SUFFIXES, sample_key
from stoop.export.pixels import Shape, shape_of
from stoop.images.source import identify

__all__ = ["write_webdataset"]

_SHARD_SAMPLES: Final = 1000
_SHARD_BYTES: Final = 512 << 20


def write_webdataset(dataset: Dataset, out: Path) -> None:
    """Write `shard-000000.tar`, `shard-000001.tar` and so on into the folder: 1,000 images or half a GiB each,
    whichever comes first.
    """
    out.mkdir()
    samples = _samples(dataset)
    number = 0
    while _write_shard(samples, out / f"shard-{number:06}.tar"):
        number += 1


def _samples(dataset: Dataset) -> Iterator[tuple[Annotated, bytes]]:
    for annotated, encoded in dataset.each(dataset.read):
        dataset.count(annotated, "boxes", "points", "captions", "answers")
        yield annotated, encoded


def _write_shard(samples: Iterator[tuple[Annotated, bytes]], path: Path) -> bool:
    """Write one shard; False if nothing was left for it."""
    first = next(samples, None)
    if first is None:
        return False
    with tarfile.open(path, "w") as shard:
        _write_sample(shard, *first)
        for count, (annotated, encoded) in enumerate(samples, start=2):
            _write_sample(shard, annotated, encoded)
            if count >= _SHARD_SAMPLES or shard.offset >= _SHARD_BYTES:
                break
    return True


def _write_sample(shard: tarfile.TarFile, annotated: Annotated, encoded: bytes) -> None:
    key = sample_key(annotated.image.name)
    _add(shard, f"{key}{_suffix(annotated.image.name, encoded)}", encoded)
    _add(shard, f"{key}.json", msgspec.json.encode(_facts(annotated, encoded)))


def _add(shard: tarfile.TarFile, name: str, content: bytes) -> None:
    # nothing of this machine, nor of the hour, is in the header: the same results make the same shard
    member = tarfile.TarInfo(name)
    member.size = len(content)
    shard.addfile(member, io.BytesIO(content))


def _suffix(name: str, encoded: bytes) -> str:
    suffix = PurePosixPath(name).suffix.lower()
    if suffix in IMAGE_SUFFIXES:
        return suffix
    try:
        image_format, _ = identify(encoded, name)
    except ImageUnreadable:
        return ".bin"
    return ".jpg" if image_format == "JPEG" else f".{image_format.lower()}"


def _facts(annotated: Annotated, encoded: bytes) -> dict[str, Any]:
    shape = Shape(annotated.image.size) if annotated.image.size else None
    with contextlib.suppress(ImageUnreadable):  # the results still hold: a reader may know a format that we do not
        shape = shape_of(encoded)
    width, height = shape.stored if shape else (None, None)
    inline = annotated.image.address.startswith("data:")
    return {
        "image": None if inline else annotated.image.address,
        "name": annotated.image.name,
        "width": width,
        "height": height,
        "orientation": shape.orientation if shape else None,
        "results": annotated.rows,
    }
