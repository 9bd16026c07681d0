"""A producer of either release: `client_program.py PACKAGE STEM COUNT LEDGER`.

Submits COUNT jobs, waits for their answers and checks them. Each step is a line in the file LEDGER, so a producer that
was killed continues where it stopped: a job without an answer there is submitted again, under the same idempotency key.
It runs with the packages of its release, so it imports nothing of today's.
"""

import asyncio
import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_IN_FLIGHT = 96


async def main(package: str, stem: str, count: int, ledger: Path) -> None:
    """Ask everything that has no answer yet."""
    records = [json.loads(line) for line in ledger.read_text().splitlines()] if ledger.exists() else []
    answered = {record["number"] for record in records if record["what"] == "answered"}
    numbers = iter([number for number in range(count) if number not in answered])
    with ledger.open("a") as lines:

        def note(**record: Any) -> None:
            lines.write(json.dumps(record) + "\n")
            lines.flush()

        async with importlib.import_module(package).AsyncClient() as client, asyncio.TaskGroup() as group:
            for _ in range(_IN_FLIGHT):
                group.create_task(ask_all(client, stem, numbers, note))


async def ask_all(client: Any, stem: str, numbers: Iterator[int], note: Any) -> None:
    """Ask one question after the other."""
    for number in numbers:
        question, expected = ("sleep 0.5", "slept") if number % 3 else (f"{stem} {number}",) * 2
        streamed = number % 2 == 0
        job = await client.prepare(
            "query", question=question, stream=streamed, lane="bulk", idempotency_key=f"{stem}-{number}",
            custom_id=f"{stem}-{number}", metadata={"number": number}, settings={"max_tokens": 1},
        )  # fmt: skip
        job_id = await client.submit(job)
        note(what="accepted", number=number, id=job_id)
        text, result = await (stream if streamed else wait)(client, job_id)
        kept = (result.output.answer, result.custom_id, result.metadata)
        right = text == expected and kept == (expected, f"{stem}-{number}", {"number": number})
        note(what="answered", number=number, id=job_id, right=right, worker=result.worker)


async def stream(client: Any, job_id: str) -> tuple[str, Any]:
    """Return the text of all deltas since the last restart, and the result."""
    text, result = "", None
    async for event in client.stream(job_id):
        kind = type(event).__name__
        if kind == "DeltaEvent":
            text += event.text
        elif kind == "RestartedEvent":
            text = ""
        elif kind == "FinishedEvent":
            result = event.result
    return text, result


async def wait(client: Any, job_id: str) -> tuple[str, Any]:
    """Return the answer and the result."""
    result = await client.result(job_id)
    return result.output.answer, result


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), Path(sys.argv[4])))
