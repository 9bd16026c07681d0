"""The images of an export and where their bytes and sizes come from; every loss is written to the report."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final, TypeVar

from stoop.errors import StoopError, UploadFailed
from stoop.export.ahead import ahead
from stoop.export.formats.annotated import Annotated, annotate
from stoop.export.gathered import Gathered, ImageEntry
from stoop.export.images import Images, read_inline, shape_inline
from stoop.export.naming import identity, steps, with_digest
from stoop.export.orientation import STORED
from stoop.export.pixels import Shape
from stoop.export.report import Report
from stoop.export.rows import BadLine, Row
from stoop_schemas.skill import Output

__all__ = ["Dataset"]

_T = TypeVar("_T")

_PATIENCE: Final = 20  # refusals in a row after which the store counts as down


@dataclass(slots=True)
class Dataset:
    """Rows gathered by image.

    `rename` makes a name fit the format. `distinct` maps a name to the part that must be unique among the images.
    """

    gathered: Gathered
    images: Images
    report: Report
    rename: Callable[[str], str] = identity
    distinct: Callable[[str], str] = identity
    _labels: dict[str, set[str]] = field(default_factory=lambda: {"boxes": set(), "points": set()})
    _texts: set[str] = field(default_factory=set)
    _refusals: int = 0

    def add(self, row: Row | BadLine) -> None:
        """Add one row; rows without an answer or an image are only counted."""
        if isinstance(row, BadLine):
            self.report.error(row.place, row.message)
            return
        self.report.rows += 1
        if not row.completed or row.output is None:
            self.report.unfinished[row.ending] += 1
        elif row.address is None:
            self.report.without_image += 1
        else:
            number = self.gathered.find(row.address) or self._add_image(row.address)
            self.gathered.add_row(number, row)
            self._note(row, row.output)

    @property
    def kinds(self) -> set[str]:
        """The kinds of answers requested: `boxes`, `points`, `captions`, `answers`."""
        return self._texts | {kind for kind, labels in self._labels.items() if labels}

    def labels(self, *kinds: str) -> list[str]:
        """Return the objects requested as `boxes` or `points`, found or not, in alphabetical order."""
        return sorted(set().union(*(self._labels[kind] for kind in kinds)))

    def measure(self, *, needed: bool) -> None:
        """Read the size and orientation of every available image, and otherwise the sizes that no row has.

        An image that cannot be read is left out if images are available or its size is `needed`.
        """
        if not needed and not self.images.found:
            return
        wanted = (entry for entry in self.gathered.images() if self.images.found or entry.size is None)
        for entry, shape in ahead(self._shape, wanted):
            self.report.measured += 1
            if not isinstance(shape, StoopError):
                self.gathered.set_shape(entry.number, shape.shown, shape.orientation)
                self.report.turned += shape.orientation != STORED
                self._refusals = 0
            elif needed or self.images.found:
                self._leave_out(entry, shape)

    def annotated(self) -> Iterator[Annotated]:
        """Yield the images with their answers, in the order they came."""
        for entry in self.gathered.images():
            yield annotate(entry, self.gathered.rows(entry.number))

    def each(self, call: Callable[[ImageEntry], _T]) -> Iterator[tuple[Annotated, _T]]:
        """Yield each image with the result of `call`, which runs ahead in threads; images it fails on are left out."""
        for annotated, answer in ahead(lambda one: call(one.image), self.annotated()):
            if isinstance(answer, StoopError):
                self._leave_out(annotated.image, answer)
            else:
                self._refusals = 0
                yield annotated, answer

    def read(self, entry: ImageEntry) -> bytes:
        """Return the encoded image; raises `ImageUnreadable` or `UploadFailed`."""
        inline = read_inline(entry.address)
        return self.images.read(entry.address) if inline is None else inline

    def count(self, annotated: Annotated, *kinds: str) -> None:
        """Count the image and its answers of these kinds as written, and its other answers as left out."""
        self.report.written["images"] += 1
        self.report.left_out["boxes without area"] += annotated.empty if "boxes" in kinds else 0
        for kind, count in annotated.counts().items():
            (self.report.written if kind in kinds else self.report.left_out)[kind] += count

    def _note(self, row: Row, output: Output) -> None:
        if output.objects is not None:
            self._labels["boxes"].add(row.label)
        if output.points is not None:
            self._labels["points"].add(row.label)
        if output.caption is not None:
            self._texts.add("captions")
        if output.answer is not None:
            self._texts.add("answers")

    def _shape(self, entry: ImageEntry) -> Shape:
        return shape_inline(entry.address) or self.images.shape(entry.address)

    def _add_image(self, address: str) -> int:
        inline = address.startswith("data:")
        try:
            found = "/".join(steps(address)) if inline else self.images.name(address)
        except StoopError as error:
            return self._refuse(address, str(error))
        if self.images.files and not inline and self.gathered.is_found(found):
            return self._refuse(address, f"{found} is the file of another image already")
        name = self.rename(found)
        if self.gathered.is_taken(self.distinct(name)):
            name = with_digest(name, address)
        if self.gathered.is_taken(self.distinct(name)):
            return self._refuse(address, f"another image is called {name} already")
        return self.gathered.add_image(address, found=found, name=name, distinct_part=self.distinct(name))

    def _refuse(self, address: str, message: str) -> int:
        """List an image once, however many rows are about it."""
        self.report.error(address, message)
        return self.gathered.add_unused(address)

    def _leave_out(self, entry: ImageEntry, error: StoopError) -> None:
        self._refusals = self._refusals + 1 if isinstance(error, UploadFailed) else 0
        if self._refusals >= _PATIENCE:
            raise error
        self.report.error(entry.address, str(error))
        self.gathered.leave_out(entry.number)
