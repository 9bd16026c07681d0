"""Every hostile input and its outcome: `python -m tests.security.table` prints it in Markdown."""

import asyncio
import dataclasses
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from stoop_schemas.result import Result
from stoop_schemas.state import State
from tests.security.case import Case
from tests.security.cases_address import ADDRESSES, INLINE
from tests.security.cases_entry import ENTRIES, VALUES
from tests.security.cases_image import IMAGES
from tests.security.cases_signed import KEYS, SIGNED
from tests.security.cases_web import WEB
from tests.security.pipeline import Seen, Servers, run

__all__ = ["ALL", "GROUPS", "ending", "markdown", "run_all"]

GROUPS: dict[str, list[Case]] = {
    "Entries": ENTRIES,
    "Values": VALUES,
    "Image addresses": ADDRESSES,
    "Images in the job": INLINE,
    "Images": IMAGES,
    "Web servers": WEB,
    "Jobs for a worker that runs signed ones only": SIGNED,
}
ALL = [case for group in GROUPS.values() for case in group]


async def run_all(servers: Servers) -> Seen:
    """Run the signed cases on a worker with keys, and all others on one without."""
    plain = await run([case for case in ALL if case not in SIGNED], servers)
    signed = await run(SIGNED, servers, KEYS)
    return dataclasses.replace(
        signed, results=plain.results | signed.results, asked=plain.asked + signed.asked, log=plain.log + signed.log
    )


def ending(result: Result) -> tuple[str, str]:
    """Return the failure code or the state, and the failure that used the last attempt up."""
    if result.failure is None:
        return result.status.value, ""
    last = re.match(r"the last of \d+ attempts failed with (\w+)", result.failure.message)
    return result.failure.code.value, last[1] if last else ""


def markdown(results: Mapping[str, Result]) -> str:
    """Return one table for each group: the input, how it ended, and the error message."""
    lines: list[str] = []
    for title, cases in GROUPS.items():
        lines += [f"### {title}", "", "| input | ends as | because |", "|---|---|---|"]
        lines += [_row(case, results[case.name]) for case in cases]
        lines.append("")
    return "\n".join(lines)


def _row(case: Case, result: Result) -> str:
    ends, last = ending(result)
    message = result.failure.message if result.failure else ""
    text = "".join(c if c.isprintable() else "·" for c in message).replace("|", "\\|")
    shown = text if len(text) <= 140 else text[:140] + "…"
    return f"| {case.name} | `{ends}`{f' ({last})' if last else ''} | {shown} |"


def main() -> None:
    from stoop.demo.embedded import embedded_redis, embedded_s3

    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        folder = Path(name)
        for variable in ("STOOP_REDIS_URL", "STOOP_S3_ENDPOINT", "STOOP_BUCKET"):
            patch.delenv(variable, raising=False)
        with embedded_redis(folder / "redis") as redis, embedded_s3(folder / "s3") as s3:
            for variable, value in s3.environment.items():
                patch.setenv(variable, value)
            seen = asyncio.run(run_all(Servers(redis.url, s3, folder)))
    print(markdown(seen.results))
    completed = sum(result.status is State.COMPLETED for result in seen.results.values())
    print(f"{len(ALL)} inputs: {completed} harmless, {len(ALL) - completed} refused, {seen.dead} dead letters.")


if __name__ == "__main__":
    main()
