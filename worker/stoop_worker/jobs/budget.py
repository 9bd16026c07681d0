"""Budgets lent in the order of priorities: slots for concurrent work, bytes for data in memory."""

import asyncio
from bisect import insort
from dataclasses import dataclass, field
from itertools import count
from typing import Final

__all__ = ["Budget", "Loan"]

_OVERTAKEN: Final = 64
"""The number of later loans of the next better priority that may pass a waiting one, so that none waits for ever."""


@dataclass(slots=True, eq=False)
class Loan:
    """A part of a budget on loan; as a context manager it gives the part back."""

    budget: "Budget"
    amount: int
    priority: int

    def shrink(self, amount: int) -> None:
        """Give back all except `amount`, because less was needed than borrowed; a loan never grows."""
        self.budget.take_back(self, max(0, self.amount - amount))

    def close(self) -> None:
        """Give all of it back; idempotent."""
        self.shrink(0)

    def __enter__(self) -> "Loan":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


@dataclass(slots=True, eq=False)
class _Waiter:
    rank: int
    loan: Loan
    granted: "asyncio.Future[None]" = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class Budget:
    """Lends parts of `total`: the lowest priority number first and, within one priority, in the order of arrival.

    All priorities except 0 together leave `reserved` of the total free. A loan larger than the total is granted only
    when nothing else is lent. A budget belongs to one event loop.
    """

    def __init__(self, total: int, *, reserved: int = 0) -> None:
        assert 0 <= reserved < total, "a budget has something for everybody"
        self.total = total
        self._reserved = reserved
        self._arrivals = count()
        self._waiting: list[_Waiter] = []  # by rank
        self._lent_behind = 0  # to priorities other than 0
        self.lent = 0
        self.peak = 0

    async def borrow(self, amount: int, priority: int) -> Loan:
        """Wait in turn for `amount`, and return the loan."""
        loan = Loan(self, amount, priority)
        if not self._waiting and self._has_room(loan):
            self._count(loan, amount)
            return loan
        waiter = _Waiter(next(self._arrivals) + _OVERTAKEN * priority, loan)
        insort(self._waiting, waiter, key=lambda each: each.rank)
        self._serve()
        try:
            await waiter.granted
        except asyncio.CancelledError:
            self._forget(waiter)
            raise
        return loan

    def take_back(self, loan: Loan, amount: int) -> None:
        """Take `amount` of a loan back, for other borrowers."""
        loan.amount -= amount
        self._count(loan, -amount)
        if self._waiting:
            self._serve()

    def _forget(self, waiter: _Waiter) -> None:
        if waiter.granted.cancelled():
            self._waiting.remove(waiter)
            self._serve()  # it may have blocked others
        else:
            waiter.loan.close()

    def _serve(self) -> None:
        reserve_left = True
        for waiter in [each for each in self._waiting if not each.granted.done()]:
            loan = waiter.loan
            if loan.priority:
                # a smaller loan must not pass a larger one of its kind, or the larger one would wait for ever
                reserve_left = reserve_left and self._leaves_reserve(loan.amount)
                if not reserve_left:
                    continue
            if not self._fits(loan.amount):
                return  # no later loan may take the room that this one waits for
            self._waiting.remove(waiter)
            self._count(loan, loan.amount)
            waiter.granted.set_result(None)

    def _has_room(self, loan: Loan) -> bool:
        return self._fits(loan.amount) and (not loan.priority or self._leaves_reserve(loan.amount))

    def _fits(self, amount: int) -> bool:
        return not self.lent or self.lent + amount <= self.total

    def _leaves_reserve(self, amount: int) -> bool:
        return not self._lent_behind or self._lent_behind + amount <= self.total - self._reserved

    def _count(self, loan: Loan, amount: int) -> None:
        self.lent += amount
        self.peak = max(self.peak, self.lent)
        if loan.priority:
            self._lent_behind += amount
