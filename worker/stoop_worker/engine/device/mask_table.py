"""The masks of a step's rows on the device, where the masks of named states stay for later steps.

Most texts of a schema pass through states that others have been in. Their rows then need neither a new mask nor a copy
of one.
"""

from collections.abc import Sequence

import torch

from stoop_worker.engine.device.batch import RowLimits
from stoop_worker.engine.device.static_buffers import StaticBuffers
from stoop_worker.engine.grammars.constraint import Constraint
from stoop_worker.engine.grammars.states import State
from stoop_worker.engine.tensors import MaskRows

__all__ = ["MaskTable"]

_KEPT = 4096
"""The masks that stay: 64 MB for 128,256 ids."""


class MaskTable:
    """Masks for up to `capacity` rows a step. The masks that stay are in a ring, where new ones replace the oldest."""

    def __init__(self, capacity: int, limits: RowLimits, device: torch.device) -> None:
        words = -(-limits.vocabulary // 32)
        self._capacity = capacity
        self._masks = limits.masks
        self._rows = StaticBuffers({"rows": ((capacity,), torch.int32)}, device)
        self._sent = StaticBuffers({"masks": ((capacity, words), torch.int32)}, device)
        # first those for one step, then the ring, with room for a whole step before the oldest
        self._table = torch.zeros(2 * capacity + _KEPT, words, dtype=torch.int32, device=device)
        self._places: dict[State | None, int] = {}
        self._states: list[State | None] = [None] * len(self._table)
        self._next = self._cleared = capacity  # no state has the places between

    def on_device(self, rows: int) -> MaskRows:
        """Return the masks of the first rows; they stay at their addresses."""
        return MaskRows(self._table, self._rows.on_device["rows"][:rows])

    def fill(self, constraints: Sequence[Constraint], rows: Sequence[int]) -> None:
        """Give some rows their masks, and start the copies; the other rows have none."""
        self._clear()
        places = [self._places.get(constraint.state) for constraint in constraints]
        if None in places:
            self._add(constraints, places)
        host = self._rows.on_host()["rows"]
        host[:] = -1
        if not rows or len(rows) == rows[-1] + 1:  # without gaps, which is usual, and faster
            host[: len(rows)] = places
        else:
            host[rows] = places
        self._rows.send()

    def _add(self, constraints: Sequence[Constraint], places: list[int | None]) -> None:
        """Compute the masks that have no places yet, give them places, and start the copies."""
        known = self._places
        staying, passing = list[Constraint](), list[Constraint]()
        for row, constraint in enumerate(constraints):
            if places[row] is not None:
                continue
            state = constraint.state
            place = known.get(state)  # another row may have had it first
            if place is None:
                if state is not None and constraint.is_general:
                    place = known[state] = self._next + len(staying)
                    self._states[place] = state
                    staying.append(constraint)
                else:
                    place = len(passing)
                    passing.append(constraint)
            places[row] = place
        masks = self._sent.on_host()["masks"]
        self._masks.fill([*staying, *passing], masks)
        alone = self._sharing_broken(staying, constraints, places)
        if alone:
            self._masks.fill([constraints[row] for row in alone], masks[len(staying) + len(passing) :])
            for row in alone:
                places[row] = len(passing)
                passing.append(constraints[row])
        self._sent.send(of_last=masks[: len(staying) + len(passing)].size)
        self._put(len(staying), len(passing))

    def _clear(self) -> None:
        """Make room for a whole step, before any row of it refers to the ring."""
        if self._next + self._capacity > len(self._table):
            self._next = self._cleared = self._capacity
        for place in range(self._cleared, self._next + self._capacity):
            self._forget(place)
        self._cleared = self._next + self._capacity

    def _forget(self, place: int) -> None:
        state, self._states[place] = self._states[place], None
        if state is not None:
            del self._places[state]

    def _sharing_broken(
        self, staying: Sequence[Constraint], constraints: Sequence[Constraint], places: Sequence[int | None]
    ) -> list[int]:
        """Forget the masks of broken texts, which end these texts alone; return the other rows that would have them."""
        broken = {place: text for place, text in enumerate(staying, self._next) if text.is_broken}
        for place in broken:
            self._forget(place)
        rows = enumerate(zip(constraints, places, strict=True))
        return [row for row, (text, place) in rows if place in broken and broken[place] is not text]

    def _put(self, staying: int, passing: int) -> None:
        """Copy the masks just sent to their places: first those that stay, then those for this step."""
        sent, first = self._sent.on_device["masks"], self._next
        if passing:
            self._table[:passing].copy_(sent[staying : staying + passing])
        if staying:
            self._next = first + staying
            self._table[first : self._next].copy_(sent[:staying])
