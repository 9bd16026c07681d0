"""The long form: `python -m tests.chaos`, or `make chaos`. Prints a table, writes JSON, fails if a promise was broken.

CHAOS_JOBS (10000), CHAOS_KILLS (20), CHAOS_SEED (0), CHAOS_LEASE (5 s), CHAOS_CASES (all; names with commas between
them), CHAOS_LIMIT (900 s, for one case), CHAOS_OUT (build/chaos.json). The cases of one bad job take no number of jobs.
"""

import asyncio
import os
import sys
import tempfile
from pathlib import Path

from tests.chaos.cases import CASES
from tests.chaos.deployment import Load
from tests.chaos.verdict import Verdict, as_json, table

__all__ = ["main"]


def main() -> None:
    """Run the cases one after the other."""
    load = Load(
        jobs=int(os.environ.get("CHAOS_JOBS", "10000")),
        faults=int(os.environ.get("CHAOS_KILLS", "20")),
        seed=int(os.environ.get("CHAOS_SEED", "0")),
        lease=float(os.environ.get("CHAOS_LEASE", "5")),
        limit=float(os.environ.get("CHAOS_LIMIT", "900")),
    )
    wanted = [name for name in os.environ.get("CHAOS_CASES", "").split(",") if name] or list(CASES)
    if unknown := set(wanted) - CASES.keys():
        sys.exit(f"no such case: {', '.join(sorted(unknown))}; there are {', '.join(CASES)}")
    # tests start their own servers, and never use another one
    os.environ.pop("STOOP_REDIS_URL", None)
    verdicts: list[Verdict] = []
    broken: list[str] = []
    with tempfile.TemporaryDirectory(prefix="stoop-chaos-") as folder:
        for name in wanted:
            print(f"{name} …", flush=True)
            try:
                verdicts.append(asyncio.run(CASES[name](Path(folder) / name, load)))
            except (AssertionError, TimeoutError, RuntimeError) as error:
                broken.append(f"{name} ({type(error).__name__}: {error})")
    print(table(verdicts))
    out = Path(os.environ.get("CHAOS_OUT", "build/chaos.json"))
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_bytes(as_json(verdicts))
    broken += [one.case for one in verdicts if not one.sound]
    if broken:
        sys.exit(f"the promise was broken: {', '.join(broken)}")


if __name__ == "__main__":
    main()
