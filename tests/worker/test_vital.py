"""Vital parts that end unexpectedly."""

import asyncio

import pytest

from stoop_worker.errors import EngineFault, PartEnded
from stoop_worker.vital import VitalParts


async def part(error: Exception | None) -> None:
    if error is not None:
        raise error


def cyclic() -> Exception:
    error = ValueError("it is its own cause")
    error.__cause__ = error
    return error


@pytest.mark.parametrize("error", [None, cyclic(), KeyError("unforeseen")])
async def test_the_worker_ends_with_any_part(error: Exception | None) -> None:
    stopped = asyncio.Event()
    parts = VitalParts({"publisher": part(error), "lease": asyncio.Event().wait()}, stopped.set)  # type: ignore[dict-item]
    async with asyncio.timeout(10):
        await stopped.wait()
    with pytest.raises(PartEnded, match="publisher"):
        parts.check()
    await parts.end()


async def test_an_error_of_the_worker_is_raised_as_it_is() -> None:
    stopped = asyncio.Event()
    parts = VitalParts({"engine": part(EngineFault("too many faults"))}, stopped.set)
    async with asyncio.timeout(10):
        await stopped.wait()
    with pytest.raises(EngineFault, match="too many faults"):
        parts.check()


async def test_running_parts_are_not_a_fault_and_end_on_request() -> None:
    parts = VitalParts({"lease": asyncio.Event().wait()}, pytest.fail)  # type: ignore[dict-item,arg-type]
    await asyncio.sleep(0)
    parts.check()
    await parts.end()
