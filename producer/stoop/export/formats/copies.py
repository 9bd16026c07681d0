"""Images put into an export: linked where that is possible, else copied or fetched."""

import os
import shutil
from pathlib import Path

from producer.errors import ImageUnreadable
from producer.export.dataset import Dataset
from producer.export.gathered import ImageEntry

__all__ = ["Copies"]


class Copies:
    """The images below one folder of an export; threads may share it. Files that are local already may stay out."""

    def __init__(self, dataset: Dataset, folder: Path, *, local: bool = True) -> None:
        self._dataset = dataset
        self._folder = folder
        self._local = local

    def place(self, entry: ImageEntry) -> None:
        """Put the image where its name says, if there is one to be had; raises `ImageUnreadable` or `UploadFailed`.

        A local file is linked hard, which takes no room, unless it lies on another file system.
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
            # stores know no folders, so `a` and `a/b.jpg` may both be images there
            raise ImageUnreadable("its name is a folder of other images") from None


def _link_or_copy(source: Path, target: Path) -> None:
    try:
        # a link to a link would break with it
        os.link(source.resolve(), target)
    except OSError:
        try:
            shutil.copyfile(source, target)
        except (FileNotFoundError, PermissionError) as error:
            raise ImageUnreadable(f"cannot copy the image: {error.strerror}") from error
