"""Runs today's release beside the previous one: `python -m tests.upgrade`, or `make upgrade-test`.

PREVIOUS (a revision of git; by default the last one of the previous version), CHAOS_JOBS (6000), CHAOS_KILLS (16),
CHAOS_SEED (0), CHAOS_LEASE (5 s), CHAOS_LIMIT (900 s), CHAOS_OUT (build/upgrade.json). Prints a table, writes JSON, and
fails if a job was lost, ended twice, or was answered wrongly.
"""

import asyncio
import os
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

from tests.chaos.deployment import Load
from tests.chaos.verdict import as_json, table
from tests.upgrade.previous import Release, install, last_of_previous_version
from tests.upgrade.two_releases import two_releases

__all__ = ["main"]


def main() -> None:
    """Build the previous release, run the case, and print."""
    load = Load(
        jobs=int(os.environ.get("CHAOS_JOBS", "6000")),
        faults=int(os.environ.get("CHAOS_KILLS", "16")),
        seed=int(os.environ.get("CHAOS_SEED", "0")),
        lease=float(os.environ.get("CHAOS_LEASE", "5")),
        workers=2,
        limit=float(os.environ.get("CHAOS_LIMIT", "900")),
    )
    os.environ.pop("STOOP_REDIS_URL", None)  # its own server, never another one
    previous = install(os.environ.get("PREVIOUS") or last_of_previous_version(), Path("build/upgrade").resolve())
    today = Release("today", version("stoop"))
    print(f"{previous.version} ({previous.name}) beside {today.version} …", flush=True)
    with tempfile.TemporaryDirectory(prefix="stoop-upgrade-") as folder:
        verdict = asyncio.run(two_releases(Path(folder), load, (previous, today)))
    print(table([verdict]))
    out = Path(os.environ.get("CHAOS_OUT", "build/upgrade.json"))
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_bytes(as_json([verdict]))
    if not verdict.sound:
        sys.exit("the promise was broken")


if __name__ == "__main__":
    main()
