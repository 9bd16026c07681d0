"""Detect and point: x, y and, for a box, its size, object after object until the model says stop.

The rule is that of Moondream's reference: any token but the end of sequence means one more object, and its x is
read from the same hidden state as that token. Always greedy.
"""

from collections.abc import Sequence
from enum import Enum, auto

from worker.engine.inputs import CoordinateInput, SizeInput
from worker.engine.request import BoxFound, Detect, Finished, FinishReason, Output, PointFound, Request, Usage
from worker.engine.skills.protocol import Advance, Ahead, Fed, Head, Reading

__all__ = ["SpatialSkill"]


class _Next(Enum):
    X = auto()
    Y = auto()
    SIZE = auto()


_HEADS = {_Next.X: Head.TOKEN | Head.COORDINATE, _Next.Y: Head.COORDINATE, _Next.SIZE: Head.SIZE}


class SpatialSkill:
    """Finds boxes for a Detect task and points for a Point task."""

    greedy = True
    suppressed: tuple[int, ...] = ()

    def __init__(self, request: Request, *, eos_id: int) -> None:
        self._id = request.id
        self._sized = isinstance(request.task, Detect)
        self._max_objects = request.sampling.max_objects
        self._eos_id = eos_id
        self._next = _Next.X
        self._x = self._y = 0.0
        self._found: list[BoxFound | PointFound] = []
        self.output_tokens = 0

    @property
    def heads(self) -> Head:
        """The first decides whether there is one more object, and gives its x."""
        return _HEADS[self._next]

    @property
    def ahead(self) -> Ahead | None:
        """The next of x, y and size, and after the last of them the x of one more object."""
        if self._next is _Next.X:
            return Ahead(Fed.COORDINATE, Head.COORDINATE)
        if self._next is _Next.Y and self._sized:
            return Ahead(Fed.COORDINATE, Head.SIZE)
        if len(self._found) + 1 == self._max_objects:
            return None
        return Ahead(Fed.SIZE if self._sized else Fed.COORDINATE, _HEADS[_Next.X])

    def advance(self, reading: Reading) -> Advance:
        """Take the next of x, y and size."""
        if self._next is _Next.X:
            return self._take_x(reading)
        if self._next is _Next.Y:
            return self._take_y(reading)
        return self._take_size(reading)

    def finish(self, reason: FinishReason, usage: Usage) -> Sequence[Output]:
        """End; an object that is not whole is left out."""
        return [
            Finished(
                self._id,
                reason,
                usage,
                boxes=tuple(found for found in self._found if isinstance(found, BoxFound)),
                points=tuple(found for found in self._found if isinstance(found, PointFound)),
            )
        ]

    def _take_x(self, reading: Reading) -> Advance:
        if reading.token == self._eos_id:
            return Advance(reason=FinishReason.STOP)
        assert reading.coordinate is not None
        self._x = reading.coordinate
        self.output_tokens += 1
        self._next = _Next.Y
        return Advance(inputs=(CoordinateInput(self._x),))

    def _take_y(self, reading: Reading) -> Advance:
        assert reading.coordinate is not None
        self._y = reading.coordinate
        self.output_tokens += 1
        fed = CoordinateInput(self._y)
        if self._sized:
            self._next = _Next.SIZE
            return Advance(inputs=(fed,))
        return self._add(PointFound(self._id, self._x, self._y), fed)

    def _take_size(self, reading: Reading) -> Advance:
        assert reading.size is not None
        width, height = reading.size
        self.output_tokens += 1
        x, y = self._x, self._y
        box = BoxFound(self._id, x - width / 2, y - height / 2, x + width / 2, y + height / 2)
        return self._add(box, SizeInput(width, height))

    def _add(self, found: BoxFound | PointFound, fed: CoordinateInput | SizeInput) -> Advance:
        self._found.append(found)
        self._next = _Next.X
        if len(self._found) == self._max_objects:
            return Advance(outputs=(found,), reason=FinishReason.LENGTH)
        return Advance(inputs=(fed,), outputs=(found,))
