import asyncio

import pytest

from stoop_worker.jobs.budget import Budget, Loan


class Queue:
    """Borrowers of one budget, in the order in which they were served."""

    def __init__(self, budget: Budget) -> None:
        self.budget = budget
        self.served: list[str] = []
        self.loans: dict[str, Loan] = {}
        self.tasks: dict[str, asyncio.Task[None]] = {}

    async def ask(self, name: str, amount: int, priority: int) -> None:
        self.tasks[name] = asyncio.create_task(self._borrow(name, amount, priority))
        await settled()

    async def end(self, name: str) -> None:
        self.loans[name].close()
        await settled()

    async def _borrow(self, name: str, amount: int, priority: int) -> None:
        self.loans[name] = await self.budget.borrow(amount, priority)
        self.served.append(name)


async def settled() -> None:
    """Let every task go on until it waits."""
    for _ in range(4):
        await asyncio.sleep(0)


async def test_loans_are_served_by_priority_then_by_arrival() -> None:
    queue = Queue(Budget(1))
    await queue.ask("holder", 1, 1)
    for name, priority in (("bulk 1", 1), ("bulk 2", 1), ("urgent", 0), ("urgent 2", 0)):
        await queue.ask(name, 1, priority)
    while len(queue.served) < 5:
        await queue.end(queue.served[-1])
    assert queue.served == ["holder", "urgent", "urgent 2", "bulk 1", "bulk 2"]


async def test_the_reserve_is_for_the_first_priority_alone() -> None:
    queue = Queue(Budget(4, reserved=1))
    for number in range(5):
        await queue.ask(f"bulk {number}", 1, 1)
    assert queue.served == ["bulk 0", "bulk 1", "bulk 2"]
    await queue.ask("urgent", 1, 0)
    assert queue.served[-1] == "urgent"
    await queue.end("urgent")
    assert queue.served[-1] == "urgent", "what it gives back is not for the others"
    await queue.end("bulk 0")
    assert queue.served[-1] == "bulk 3"


async def test_overtaking_is_bounded() -> None:
    queue = Queue(Budget(1))
    await queue.ask("first", 1, 0)
    await queue.ask("bulk", 1, 1)
    for number in range(200):
        await queue.ask(f"urgent {number}", 1, 0)
    while "bulk" not in queue.served:
        await queue.end(queue.served[-1])
    assert 60 < len(queue.served) < 70


async def test_one_larger_than_all_passes_alone() -> None:
    queue = Queue(Budget(10))
    await queue.ask("small", 3, 0)
    await queue.ask("huge", 50, 0)
    await queue.ask("next", 1, 0)
    assert queue.served == ["small"], "what comes later must not keep it waiting"
    await queue.end("small")
    assert queue.served == ["small", "huge"]
    await queue.end("huge")
    assert queue.served == ["small", "huge", "next"]


@pytest.mark.parametrize("large", [8, 12])
async def test_a_smaller_one_does_not_pass_a_larger_one_of_its_kind(large: int) -> None:
    queue = Queue(Budget(10, reserved=2))
    await queue.ask("first", 4, 1)
    await queue.ask("large", large, 1)
    await queue.ask("small", 1, 1)
    assert queue.served == ["first"]
    await queue.ask("urgent", 6, 0)
    assert queue.served == ["first", "urgent"]
    await queue.end("first")
    await queue.end("urgent")
    assert queue.served[:3] == ["first", "urgent", "large"]


async def test_the_unneeded_part_of_a_loan_is_lent_again_at_once() -> None:
    queue = Queue(Budget(10))
    await queue.ask("first", 10, 0)
    await queue.ask("second", 4, 0)
    queue.loans["first"].shrink(6)
    await settled()
    assert queue.served == ["first", "second"]
    queue.loans["first"].shrink(9)  # it never grows
    assert (queue.budget.lent, queue.budget.peak) == (10, 10)
    queue.loans["first"].close()
    queue.loans["first"].close()
    assert queue.budget.lent == 4


async def test_a_cancelled_wait_delays_no_other() -> None:
    queue = Queue(Budget(10))
    await queue.ask("first", 6, 0)
    await queue.ask("large", 8, 0)
    await queue.ask("small", 2, 0)
    queue.tasks["large"].cancel()
    await settled()
    assert queue.served == ["first", "small"]


async def test_a_wait_cancelled_just_as_it_is_served_holds_nothing() -> None:
    queue = Queue(Budget(1))
    await queue.ask("first", 1, 0)
    await queue.ask("second", 1, 0)
    queue.loans["first"].close()  # the second has its loan, but does not know it yet
    queue.tasks["second"].cancel()
    await settled()
    assert queue.budget.lent == 0
