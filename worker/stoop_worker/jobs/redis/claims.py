"""The deliveries that one worker holds, and the limits on its next claim."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from stoop_schemas import names
from stoop_worker.jobs.broker import Delivery, DeliveryKey, Isolation

__all__ = ["ClaimPlan", "Claims", "Part"]


class Part(NamedTuple):
    """The source of one claim: the lanes of one model (None: those without a model) in one partition."""

    partition: int
    model: str | None = None

    def __str__(self) -> str:
        return f"partition {self.partition}" + (f", model {self.model}" if self.model else "")


_ROUNDS: Final = 4
"""Small batches, or jobs alone, after which the lanes come first once."""


@dataclass(frozen=True, slots=True)
class ClaimPlan:
    """One claim from one part, of at most `permits` jobs.

    `occupancy` describes the worker: `idle` (it holds nothing), `busy`, or `small` (it holds a small batch of the
    quarantine). With `quarantine_first` the quarantine comes before the lanes; without it, only if the lanes are empty.
    """

    permits: int
    occupancy: str
    quarantine_first: bool
    part: Part


@dataclass(slots=True)
class Claims:
    """Decides what to claim, so that only jobs of the same small batch run beside a quarantined job.

    After at most four rounds in the quarantine (a small batch, or one job alone) the lanes come first once, so that
    quarantined jobs delay the others but never stop them. A small batch is filled up as its jobs end.
    """

    small_batch: int
    held: dict[DeliveryKey, Delivery] = field(default_factory=dict)
    # quarantined jobs of each part that may run before its lanes come first; one alone counts as a small batch
    _allowances: dict[Part, int] = field(default_factory=dict)
    # the part whose quarantine waits until nothing else is held
    _waiting: Part | None = None

    @property
    def blocked(self) -> bool:
        """True if nothing can be claimed before a delivery is settled."""
        return self._waiting is not None or any(one.isolation is not Isolation.NONE for one in self.held.values())

    def plan(self, part: Part, permits: int) -> ClaimPlan | None:
        """Return how to claim from a part now, or None if nothing may be claimed there."""
        apart = [one for one in self.held.values() if one.isolation is not Isolation.NONE]
        if any(one.isolation is Isolation.ALONE or _part_of(one) != part for one in apart):
            return None
        if apart:
            permits = min(permits, self.small_batch - len(apart), self._allowance_of(part))
        elif self._waiting not in (None, part):
            return None
        if permits <= 0:
            return None
        return ClaimPlan(
            permits, "small" if apart else "busy" if self.held else "idle", self._allowance_of(part) > 0, part
        )

    def accept(self, deliveries: Iterable[Delivery], plan: ClaimPlan) -> list[Delivery]:
        """Add the deliveries of a claim, and return the new ones: a re-created group delivers old ones again."""
        fresh = [one for one in deliveries if one.key not in self.held]
        self.held.update((one.key, one) for one in fresh)
        cost = sum(self._cost_of(one) for one in fresh)
        if plan.occupancy != "small" and not (cost and plan.quarantine_first):
            # the lanes were asked
            self._allowances.pop(plan.part, None)
        self._allowances[plan.part] = self._allowance_of(plan.part) - cost
        return fresh

    def _allowance_of(self, part: Part) -> int:
        return self._allowances.get(part, _ROUNDS * self.small_batch)

    def _cost_of(self, delivery: Delivery) -> int:
        return {Isolation.NONE: 0, Isolation.SMALL: 1, Isolation.ALONE: self.small_batch}[delivery.isolation]

    def hold_back(self, part: Part | None) -> None:
        """Claim from this part alone until its quarantined jobs have been claimed; None: claim from every part."""
        self._waiting = part

    def drop(self, keys: Iterable[DeliveryKey]) -> None:
        """Forget the settled deliveries."""
        for key in keys:
            self.held.pop(key, None)


def _part_of(suspect: Delivery) -> Part:
    quarantine = names.quarantine_of(suspect.lane)
    return Part(suspect.partition, quarantine[0] if quarantine else None)
