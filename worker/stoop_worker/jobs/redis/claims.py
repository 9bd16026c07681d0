"""The deliveries that one worker holds, and the limits on its next claim."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from stoop_schemas import names
from stoop_worker.jobs.broker import Delivery, Isolation

__all__ = ["Claims", "Part", "Place", "Plan", "place_of"]

Place = tuple[int, str, str, int]
"""Partition, lane, entry and attempt: what tells one delivery from every other."""


class Part(NamedTuple):
    """The source of one claim: the lanes of one model (None: those without a model) in one partition."""

    partition: int
    model: str | None = None

    def __str__(self) -> str:
        return f"partition {self.partition}" + (f", model {self.model}" if self.model else "")


_ROUNDS: Final = 4
"""Small batches, or jobs alone, after which the lanes come first once."""


@dataclass(frozen=True, slots=True)
class Plan:
    """One claim from one part: at most `permits`.

    `at` tells the script what is held: `idle` (nothing), `busy`, or `small` (a small batch of the quarantine). With
    `may_turn` the quarantine comes before the lanes, without it only if there is nothing in them.
    """

    permits: int
    at: str
    may_turn: bool
    part: Part


@dataclass(slots=True)
class Claims:
    """Decides what may be claimed, so that nothing runs beside a quarantined job but what may.

    After a turn of at most four rounds (a small batch, or one job alone) the lanes are asked once, so that quarantined
    jobs delay the others but never stop them. A small batch is filled up as its jobs end.
    """

    small_batch: int
    held: dict[Place, Delivery] = field(default_factory=dict)
    # jobs of small batches that a part's turn still has room for; one alone takes the room of a batch
    _turns_left: dict[Part, int] = field(default_factory=dict)
    # the part whose quarantine waits until nothing else is held
    _waiting: Part | None = None

    @property
    def blocked(self) -> bool:
        """True if nothing can be claimed before a delivery is settled."""
        return self._waiting is not None or any(one.isolation is not Isolation.NONE for one in self.held.values())

    def plan(self, part: Part, permits: int) -> Plan | None:
        """Say how to claim from a part now, or None if nothing may be claimed there."""
        apart = [one for one in self.held.values() if one.isolation is not Isolation.NONE]
        if any(one.isolation is Isolation.ALONE or _part_of(one) != part for one in apart):
            return None
        if apart:
            permits = min(permits, self.small_batch - len(apart), self._turn_left(part))
        elif self._waiting not in (None, part):
            return None
        if permits <= 0:
            return None
        return Plan(permits, "small" if apart else "busy" if self.held else "idle", self._turn_left(part) > 0, part)

    def accept(self, deliveries: Iterable[Delivery], plan: Plan) -> list[Delivery]:
        """Note what a claim brought, and return what was not held before (a group made anew hands that out again)."""
        fresh = [one for one in deliveries if place_of(one) not in self.held]
        self.held.update((place_of(one), one) for one in fresh)
        rooms = sum(self._room_of(one) for one in fresh)
        if plan.at != "small" and not (rooms and plan.may_turn):
            # the lanes were asked
            self._turns_left.pop(plan.part, None)
        self._turns_left[plan.part] = self._turn_left(plan.part) - rooms
        return fresh

    def _turn_left(self, part: Part) -> int:
        return self._turns_left.get(part, _ROUNDS * self.small_batch)

    def _room_of(self, delivery: Delivery) -> int:
        return {Isolation.NONE: 0, Isolation.SMALL: 1, Isolation.ALONE: self.small_batch}[delivery.isolation]

    def hold_back(self, part: Part | None) -> None:
        """Ask this part alone from now on, until its quarantined jobs could be claimed; None: ask each."""
        self._waiting = part

    def drop(self, places: Iterable[Place]) -> None:
        """Forget the settled deliveries."""
        for place in places:
            self.held.pop(place, None)


def place_of(delivery: Delivery) -> Place:
    """Return the key that distinguishes this delivery from every other."""
    return delivery.partition, delivery.lane, delivery.entry_id, delivery.attempt


def _part_of(suspect: Delivery) -> Part:
    quarantine = names.quarantine_of(suspect.lane)
    return Part(suspect.partition, quarantine[0] if quarantine else None)
