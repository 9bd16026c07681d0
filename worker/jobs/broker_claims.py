"""What one worker holds, and what it may claim beside that."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from worker.jobs.broker import Delivery, Isolation

__all__ = ["Claims", "Place", "Plan", "place_of"]

Place = tuple[int, str, str, int]
"""Partition, lane, entry and attempt: what tells one delivery from every other."""

_ROUNDS: Final = 4
"""Small batches, or jobs alone, after which the lanes come first once."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How to claim from one partition now: at most `permits`.

    `at` tells the script what is held: `idle` (nothing), `busy`, or `small` (a small batch of the quarantine). With
    `may_turn` the quarantine comes before the lanes, without it only if there is nothing in them.
    """

    permits: int
    at: str
    may_turn: bool


@dataclass(slots=True)
class Claims:
    """Decides what may be claimed, so that nothing runs beside a quarantined job but what may.

    After a turn of at most four rounds (a small batch, or one job alone) the lanes are asked once, so that quarantined
    jobs delay the others but never stop them. A small batch is filled up as its jobs end.
    """

    small_batch: int
    held: dict[Place, Delivery] = field(default_factory=dict)
    # jobs of small batches that this turn still has room for; one alone takes the room of a batch
    _turn_left: int = field(init=False)
    # the partition whose quarantine waits until nothing else is held
    _waiting: int | None = None

    def __post_init__(self) -> None:
        self._turn_left = _ROUNDS * self.small_batch

    @property
    def blocked(self) -> bool:
        """Whether nothing can be claimed before something is settled."""
        return self._waiting is not None or any(one.isolation is not Isolation.NONE for one in self.held.values())

    def plan(self, partition: int, permits: int) -> Plan | None:
        """Say how to claim from a partition now, or None if nothing may be claimed there."""
        apart = [one for one in self.held.values() if one.isolation is not Isolation.NONE]
        if any(one.isolation is Isolation.ALONE or one.partition != partition for one in apart):
            return None
        if apart:
            permits = min(permits, self.small_batch - len(apart), self._turn_left)
        elif self._waiting not in (None, partition):
            return None
        if permits <= 0:
            return None
        return Plan(permits, "small" if apart else "busy" if self.held else "idle", self._turn_left > 0)

    def accept(self, deliveries: Iterable[Delivery], plan: Plan) -> list[Delivery]:
        """Note what a claim brought, and return what was not held before (a group made anew hands that out again)."""
        fresh = [one for one in deliveries if place_of(one) not in self.held]
        self.held.update((place_of(one), one) for one in fresh)
        rooms = sum(self._room_of(one) for one in fresh)
        if plan.at != "small" and not (rooms and plan.may_turn):
            # the lanes were asked
            self._turn_left = _ROUNDS * self.small_batch
        self._turn_left -= rooms
        return fresh

    def _room_of(self, delivery: Delivery) -> int:
        return {Isolation.NONE: 0, Isolation.SMALL: 1, Isolation.ALONE: self.small_batch}[delivery.isolation]

    def hold_back(self, partition: int | None) -> None:
        """Ask this partition alone from now on, until its quarantined jobs could be claimed; None: ask each."""
        self._waiting = partition

    def drop(self, places: Iterable[Place]) -> None:
        """Forget what was settled."""
        for place in places:
            self.held.pop(place, None)


def place_of(delivery: Delivery) -> Place:
    """Return what tells this delivery from every other."""
    return delivery.partition, delivery.lane, delivery.entry_id, delivery.attempt
