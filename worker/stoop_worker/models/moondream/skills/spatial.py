"""Detect, point and gaze: x, y and, for a box, its size, object after object until the model ends. The rule is that of
Moondream's reference: any token except the end of sequence means one more object, and its x is read from the same
hidden state as that token. Always greedy. Moondream 3 applies this rule to the first object alone; then the coordinate
id must be at least as likely as the end. `TokenizerConfig.stop_rule` chooses between these rules.
"""

from collections.abc import Sequence
from enum import Enum, auto

from stoop_worker.engine.inputs import ValuesInput
from stoop_worker.engine.request import (
    BoxFound,
    Detect,
    Finished,
    FinishReason,
    Gaze,
    Output,
    PointFound,
    Request,
    Usage,
)
from stoop_worker.engine.skill import Advance, Head, HeadValues, Lookahead
from stoop_worker.models.moondream.config_parts import TokenizerConfig
from stoop_worker.models.moondream.values import Fed, continues_by, coordinate_input, coordinate_of, size_input, size_of

__all__ = ["SpatialSkill"]


class _Next(Enum):
    X = auto()
    Y = auto()
    SIZE = auto()


_HEADS = {_Next.X: Head.TOKEN | Head.VALUES, _Next.Y: Head.VALUES, _Next.SIZE: Head.VALUES}


class SpatialSkill:
    """Finds boxes for a Detect task, points for a Point task, and one point at most for a Gaze task."""

    greedy = True
    suppressed: tuple[int, ...] = ()
    rule: tuple[int, ...] = ()
    finishes_late = False
    constraint = None

    def __init__(self, request: Request, *, ids: TokenizerConfig) -> None:
        self._id = request.id
        self._sized = isinstance(request.task, Detect)
        gaze = isinstance(request.task, Gaze)
        self._max_objects = 1 if gaze else request.sampling.max_objects
        self._full = FinishReason.STOP if gaze else FinishReason.LENGTH
        self._ids = ids
        self._next = _Next.X
        self._x = self._y = 0.0
        self._found: list[BoxFound | PointFound] = []
        self.output_tokens = 0

    @property
    def heads(self) -> Head:
        """The heads to read next. The first decides whether there is one more object, and gives its x."""
        return _HEADS[self._next]

    @property
    def lookahead(self) -> Lookahead | None:
        """The next of x, y and size, and after the last of them the x of one more object."""
        if self._next is _Next.X:
            return Lookahead(Fed.COORDINATE, Head.VALUES)
        if self._next is _Next.Y and self._sized:
            return Lookahead(Fed.COORDINATE, Head.VALUES)
        if len(self._found) + 1 == self._max_objects:
            return None
        return Lookahead(Fed.SIZE if self._sized else Fed.COORDINATE, _HEADS[_Next.X])

    def advance(self, found: HeadValues) -> Advance:
        """Take the next of x, y and size."""
        if self._next is _Next.X:
            return self._take_x(found)
        if self._next is _Next.Y:
            return self._take_y(found)
        return self._take_size(found)

    def finish(self, reason: FinishReason, usage: Usage) -> Sequence[Output]:
        """End; an incomplete object is left out."""
        return [
            Finished(
                self._id,
                reason,
                usage,
                boxes=tuple(found for found in self._found if isinstance(found, BoxFound)),
                points=tuple(found for found in self._found if isinstance(found, PointFound)),
            )
        ]

    def _take_x(self, found: HeadValues) -> Advance:
        if self._ends(found):
            return Advance(reason=FinishReason.STOP)
        self._x = coordinate_of(found)
        self.output_tokens += 1
        self._next = _Next.Y
        return Advance(inputs=(coordinate_input(self._x),))

    def _ends(self, found: HeadValues) -> bool:
        by_pair = self._ids.stop_rule == "pair" or (self._ids.stop_rule == "pair_after_first" and bool(self._found))
        return continues_by(found) < 0 if by_pair else found.token == self._ids.eos_id

    def _take_y(self, found: HeadValues) -> Advance:
        self._y = coordinate_of(found)
        self.output_tokens += 1
        fed = coordinate_input(self._y)
        if self._sized:
            self._next = _Next.SIZE
            return Advance(inputs=(fed,))
        return self._add(PointFound(self._id, self._x, self._y), fed)

    def _take_size(self, found: HeadValues) -> Advance:
        width, height = size_of(found)
        self.output_tokens += 1
        x, y = self._x, self._y
        box = BoxFound(self._id, x - width / 2, y - height / 2, x + width / 2, y + height / 2)
        return self._add(box, size_input(width, height))

    def _add(self, output: BoxFound | PointFound, fed: ValuesInput) -> Advance:
        self._found.append(output)
        self._next = _Next.X
        if len(self._found) == self._max_objects:
            return Advance(outputs=(output,), reason=self._full)
        return Advance(inputs=(fed,), outputs=(output,))
