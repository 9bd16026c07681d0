"""The images of an export: none, in a folder, or in the object store."""

from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from stoop.errors import ConfigError, ImageUnreadable
from stoop.export.naming import own_name, steps
from stoop.export.objects import ObjectReader
from stoop.export.pixels import Shape, shape_in_file, shape_of, shape_of_head
from stoop.images.source import inline

if TYPE_CHECKING:
    from stoop.config import ProducerConfig

__all__ = ["FolderImages", "Images", "NoImages", "StoredImages", "open_images", "read_inline", "shape_inline"]

_STORE: Final = "s3"


class Images(Protocol):
    """Finds images by the address in a result; several threads may use it at once.

    Every method raises `ImageUnreadable` or `UploadFailed` if it fails.
    """

    @property
    def found(self) -> bool:
        """True if images can be read at all."""
        ...

    @property
    def files(self) -> bool:
        """True if images are files, each with exactly one name."""
        ...

    def name(self, address: str) -> str:
        """Return the image's name here: a relative path with `/`."""
        ...

    def shape(self, address: str) -> Shape:
        """Return the image's size and orientation."""
        ...

    def read(self, address: str) -> bytes:
        """Return the encoded image."""
        ...

    def path(self, address: str) -> Path | None:
        """Return the image's file, or None if it is not a file."""
        ...

    def close(self) -> None:
        """Disconnect."""
        ...


class NoImages:
    """No images; facts about them come only from results and `data:` addresses."""

    found = files = False

    def name(self, address: str) -> str:
        """Name the image by its address."""
        return own_name(address)

    def shape(self, address: str) -> Shape:
        """Refuse."""
        raise ImageUnreadable("its size is not in the result: give --images a folder, or s3")

    def read(self, address: str) -> bytes:
        """Refuse."""
        raise ImageUnreadable("its bytes are not in the result: give --images a folder, or s3")

    def path(self, address: str) -> Path | None:
        """Know no file."""
        return None

    def close(self) -> None:
        """Nothing is held."""


class FolderImages:
    """Images below a folder, found by their whole path or by the longest end of it that exists.

    `s3://bucket/set/a/1.jpg` is `bucket/set/a/1.jpg`, else `set/a/1.jpg`, `a/1.jpg` or `1.jpg`, whichever is a file.
    """

    found = files = True

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._absolute = folder.absolute()

    def name(self, address: str) -> str:
        """Name the image by its file below the folder."""
        return self._find(address).relative_to(self._folder).as_posix()

    def shape(self, address: str) -> Shape:
        """Read the header of its file."""
        return shape_in_file(self._find(address))

    def read(self, address: str) -> bytes:
        """Read its file."""
        path = self._find(address)
        try:
            return path.read_bytes()
        except OSError as error:
            raise ImageUnreadable(f"cannot read the image: {error.strerror}") from error

    def path(self, address: str) -> Path | None:
        """Return its file."""
        return self._find(address).absolute()

    def close(self) -> None:
        """Nothing is held."""

    def _find(self, address: str) -> Path:
        taken = steps(address)
        if address.startswith("/") and Path(address).is_relative_to(self._absolute):
            taken = steps(Path(address).relative_to(self._absolute).as_posix())
        for start in range(len(taken)):
            path = self._folder.joinpath(*taken[start:])
            if path.is_file():
                return path
        raise ImageUnreadable(f"there is no file {'/'.join(taken)} in {self._folder}, nor one by the end of this path")


class StoredImages:
    """Images in the object store, at the `s3://` addresses of the results."""

    found, files = True, False

    def __init__(self, config: "ProducerConfig") -> None:
        self._objects = ObjectReader(config)

    def name(self, address: str) -> str:
        """Name the image by its key."""
        return own_name(address)

    def shape(self, address: str) -> Shape:
        """Fetch only as many bytes of the object as its size needs."""
        return shape_of_head(lambda count: self._objects.read(address, count))

    def read(self, address: str) -> bytes:
        """Fetch the object."""
        return self._objects.read(address)

    def path(self, address: str) -> Path | None:
        """Know no file."""
        return None

    def close(self) -> None:
        """Disconnect from the store."""
        self._objects.close()


def open_images(where: str | None, config: "ProducerConfig") -> Images:
    """Return the images in a folder, in the object store (`s3`), or none; raises `ConfigError`."""
    if where is None:
        return NoImages()
    if where == _STORE:
        return StoredImages(config)
    folder = Path(where).expanduser()
    if not folder.is_dir():
        raise ConfigError(f"--images {where}: there is no such folder; give one, or s3")
    return FolderImages(folder)


def read_inline(address: str) -> bytes | None:
    """Return the image in a `data:` address; None for any other address. Raises `ImageUnreadable`."""
    return inline(address) if address.startswith("data:") else None


def shape_inline(address: str) -> Shape | None:
    """Return the shape of the image in a `data:` address; None for any other address. Raises `ImageUnreadable`."""
    encoded = read_inline(address)
    return None if encoded is None else shape_of(encoded)
