"""Records the keys that a release leaves in Redis: `python -m tests.upgrade.record REVISION`.

Writes `recorded/VERSION.json`: `waiting` has jobs of its producer that no worker has claimed, `ended` has jobs that its
worker has ended, with their results, their logs, a dead letter and the worker's record. The exported JSON Schemas of
the release come along as `schemas`.
"""

import asyncio
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from redis.asyncio import Redis

from stoop.demo.embedded import embedded_redis
from stoop_schemas import names
from tests.chaos.deployment import Load, environment_of
from tests.chaos.workers import WorkerProcess
from tests.upgrade.keys import save
from tests.upgrade.previous import Release, install

__all__ = ["main"]

_PROGRAM = Path(__file__).with_name("record_program.py")
_SCHEMAS = ("event", "job", "result")


def main() -> None:
    """Install the revision, record it, and write the file."""
    release = install(sys.argv[1], Path("build/upgrade").resolve())
    with tempfile.TemporaryDirectory(prefix="stoop-record-") as folder:
        recorded = {
            "version": release.version,
            **{kind: asyncio.run(_record(Path(folder) / kind, release, kind)) for kind in ("waiting", "ended")},
            "schemas": _schemas(release),
        }
    path = Path(__file__).parent / "recorded" / f"{release.version}.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(recorded, indent=1) + "\n", encoding="utf-8")
    print(f"wrote {path}")


async def _record(folder: Path, release: Release, kind: str) -> dict[str, Any]:
    folder.mkdir()
    with embedded_redis(folder / "redis") as server:
        own = {"STOOP_BUCKET": "stoop", **release.environment}
        environment = {**environment_of(server.url, Load(jobs=0, faults=0), {}), **own}
        async with Redis.from_url(server.url, protocol=2, decode_responses=True) as redis:
            ids = json.loads(
                subprocess.check_output([sys.executable, _PROGRAM, release.package, kind], env=environment)
            )
            if kind == "ended":
                await redis.xadd(names.lane(names.DEFAULT_LANES[0]), {"j": '{"v": 1, "skill": 7}'})
                return {"ids": ids, "keys": await _run(folder, redis, environment, list(ids.values()))}
            return {"ids": ids, "keys": await save(redis)}


async def _run(folder: Path, redis: "Redis[str]", environment: dict[str, str], ids: list[str]) -> dict[str, Any]:
    """Let the release's worker end every job; return the keys while it lives."""
    worker = WorkerProcess(folder, "worker", environment)
    await worker.start()
    async with asyncio.timeout(30):
        while await redis.exists(*map(names.result, ids)) < len(ids) or not await redis.xlen(names.dead()):
            await asyncio.sleep(0.05)
    keys = await save(redis)
    await worker.kill()
    return keys


def _schemas(release: Release) -> dict[str, Any]:
    site = Path(release.environment["PYTHONPATH"].partition(":")[0])
    [folder] = {path.parent for path in site.glob("*/json/job.schema.json")}
    return {name: json.loads((folder / f"{name}.schema.json").read_text(encoding="utf-8")) for name in _SCHEMAS}


if __name__ == "__main__":
    main()
