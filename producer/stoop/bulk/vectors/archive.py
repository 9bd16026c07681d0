"""Turns shards of lines into shards of vectors, and keeps them in their place."""

import contextlib
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Final

from stoop.bulk.output.recovery import shard_number
from stoop.bulk.vectors import npy, parquet
from stoop.bulk.vectors.places import Place

__all__ = ["FORMATS", "VectorArchive"]

_DRAFTS: Final = ".drafts"
FORMATS: Final = MappingProxyType({"parquet": parquet, "npy": npy})


class VectorArchive:
    """The `Archive` of a run: the shard `vectors-00007` holds the vectors of the lines of `results-00007.jsonl`.

    `form` is a module of `FORMATS`. Shards are drafted in a hidden folder of `folder`, and each appears in its place as
    a whole.
    """

    def __init__(self, place: Place, form: ModuleType, folder: Path) -> None:
        self._place = place
        self._form = form
        self._folder = folder
        self._name = re.compile(rf"vectors-\d{{5,}}{re.escape(form.SUFFIX)}")

    @property
    def place(self) -> str:
        """The folder or the address of the shards."""
        return self._place.address

    def names(self) -> list[str]:
        """Return the names of the shards; other files may be there too."""
        return sorted(name for name in self._place.names() if self._name.fullmatch(name))

    def rows(self, name: str) -> Iterator[str]:
        """Read the names of a shard's rows."""
        with self._drafts() as drafts:
            for each in [*self._form.companions(name), name]:
                self._place.get(each, drafts / each)
            yield from self._form.read_rows(drafts / name)

    def store(self, shard: Path) -> str:
        """Write the shard's vectors; the file that `names` looks for comes last."""
        with self._drafts() as drafts:
            written: list[Path] = self._form.write(shard, drafts / f"vectors-{shard_number(shard.name):05}")
            for path in written:
                self._place.put(path)
        return written[-1].name

    @contextlib.contextmanager
    def _drafts(self) -> Iterator[Path]:
        drafts = self._folder / _DRAFTS
        shutil.rmtree(drafts, ignore_errors=True)  # of a session that was killed
        drafts.mkdir()
        yield drafts
        shutil.rmtree(drafts)
