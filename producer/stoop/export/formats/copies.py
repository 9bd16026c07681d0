"""Puts images into an export: linked if possible, otherwise copied or fetched."""

import os
import shutil
from pathlib import Path

from stoop.errors import ImageUnreadable
from stoop.export.formats.dataset import Dataset
from stoop.export.gathered import ImageEntry

__all__ = ["Copies"]


class Copies:
    """The images below one folder of an export; threads may share it. Without `local`, local files stay in place."""

    def __init__(self, dataset: Dataset, folder: Path, *, local: bool = True) -> None:
        self._dataset = dataset
        self._folder = folder
        self._local = local

    def place(self, entry: ImageEntry) -> None:
        """Put the image at its name if it can be had. Raises `ImageUnreadable` or `UploadFailed`.

        A local file is hard-linked, which takes no space, unless it is on another file system.
        """
        images, inline = self._dataset.images, entry.address.startswith("data:")
        if not inline and (not images.found or (images.files and not self._local)):
            return
        source = None if inline else images.path(entry.address)
        encoded = self._dataset.read(entry) if source is None else None
        target = self._folder / entry.name
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            if encoded is not None:
                target.write_bytes(encoded)
            elif source is not None:
                _link_or_copy(source, target)
        except (FileExistsError, IsADirectoryError, NotADirectoryError):
            # an object store has no folders, so both `a` and `a/b.jpg` may be images
            raise ImageUnreadable("its name is also a folder of other images") from None


def _link_or_copy(source: Path, target: Path) -> None:
    try:
        # resolve first, because a link to a symbolic link would break with it
        os.link(source.resolve(), target)
    except OSError:
        try:
            shutil.copyfile(source, target)
        except (FileNotFoundError, PermissionError) as error:
            raise ImageUnreadable(f"cannot copy the image: {error.strerror}") from error
