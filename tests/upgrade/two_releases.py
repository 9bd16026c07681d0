"""Workers and producers of two releases on one Redis, killed at random under load."""

import asyncio
import json
import re
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from stoop.operator.redis_operator import RedisOperator
from tests.chaos.deployment import Deployment, Load, deployment, environment_of
from tests.chaos.verdict import Verdict
from tests.chaos.workers import WorkerProcess
from tests.upgrade.previous import Release

__all__ = ["two_releases"]

_PROGRAM = Path(__file__).with_name("client_program.py")
_POLL_SECONDS = 0.05
_CLAIM_SECONDS = 0.3


@dataclass(slots=True)
class _Producer:
    """A producer's process and its ledger; `starts` counts the first one too."""

    release: Release
    count: int
    path: Path
    environment: dict[str, str]
    starts: int = 0
    _process: asyncio.subprocess.Process | None = field(default=None, init=False)
    _killing: bool = field(default=False, init=False)
    _read: int = field(default=0, init=False)

    async def start(self) -> None:
        self.starts += 1
        words = (self.release.package, self.release.name, str(self.count), str(self.path))
        with self.path.with_suffix(".log").open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, str(_PROGRAM), *words),
                env=self.environment, stdin=asyncio.subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip

    async def kill(self) -> bool:
        """Kill it and start another in its place; False if it has ended by itself."""
        assert self._process is not None, "start it first"
        if self._process.returncode is not None:
            return False
        self._killing = True
        self._process.kill()
        await self._process.wait()
        await self.start()
        self._killing = False
        return True

    async def until_done(self) -> None:
        """Wait until a process has ended by itself, however many are killed before."""
        while True:
            assert self._process is not None, "start it first"
            process = self._process
            code = await process.wait()
            if code == 0:
                return
            if process is self._process and not self._killing:
                raise RuntimeError(f"{self.path.stem} ended with {code}: {self.path.with_suffix('.log').read_text()}")
            await asyncio.sleep(_POLL_SECONDS)

    def records(self, *, new: bool = False) -> Iterator[dict[str, object]]:
        """Yield the whole lines of the ledger: all, or those since the last call with `new`."""
        packed = self.path.read_bytes()[self._read if new else 0 :] if self.path.exists() else b""
        whole = packed[: packed.rfind(b"\n") + 1]
        if new:
            self._read += len(whole)
        # a killed producer leaves whole lines: it writes each by one small write
        for line in whole.splitlines():
            yield json.loads(line)


async def two_releases(folder: Path, load: Load, releases: tuple[Release, Release]) -> Verdict:
    """Kill workers and producers of both releases in turn, and start others in their place.

    Fails unless every client got its right answers, and each release ran jobs of each.
    """
    async with deployment(folder, load, start=False, permits="32") as here:
        started: dict[int, str] = {}
        workers = [
            (release, WorkerProcess(folder, f"worker-{release.name}-{number}", _environment(here, release)))
            for release in releases
            for number in range(load.workers)
        ]
        here.workers += [worker for _, worker in workers]

        async def start(release: Release, worker: WorkerProcess) -> None:
            await worker.start()
            started[worker.pid] = release.name

        await asyncio.gather(*(start(*each) for each in workers))
        versions = await _versions(here)
        producers = [
            _Producer(each, load.jobs // 2, folder / f"producer-{each.name}.jsonl", _environment(here, each))
            for each in releases
        ]
        await asyncio.gather(*(producer.start() for producer in producers))
        following = asyncio.create_task(_follow(here, producers))
        recovering: list[asyncio.Task[None]] = []
        restarting: dict[WorkerProcess, asyncio.Task[None]] = {}
        turn = 0

        async def kill() -> bool:
            """Kill a worker of one release, one of the other, then a producer of each."""
            nonlocal turn
            turn += 1
            if turn % 4 >= 2:
                return await producers[turn % 2].kill()
            while not (
                own := [each for each in workers if each[0] is releases[turn % 2] and each[1] not in restarting]
            ):
                await asyncio.wait(restarting.values(), return_when=asyncio.FIRST_COMPLETED)
            release, worker = here.chance.choice(own)
            claimed = await _freeze(here, worker)
            await worker.kill()
            recovering.append(asyncio.create_task(here.recovers(claimed)))
            restarting[worker] = asyncio.create_task(start(release, worker))
            restarting[worker].add_done_callback(lambda task: task.exception() or restarting.pop(worker))
            return bool(claimed)

        await asyncio.gather(here.at_each_share(kill), *(producer.until_done() for producer in producers))
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
        await _note(here, producers)
        await asyncio.gather(*recovering, *restarting.values())
        verdict = await here.verdict("two releases")
    return replace(verdict, facts={"workers": versions, **_facts(producers, started)})


async def _freeze(here: Deployment, worker: WorkerProcess) -> list[str]:
    """Stop a worker once it holds jobs; return their ids, or none if every job has ended."""
    while True:
        worker.send(signal.SIGSTOP)
        claimed = await here.pending_of(worker.pid)
        if claimed or len(here.ledger.account.ended) >= here.load.jobs:
            return claimed
        worker.send(signal.SIGCONT)
        await asyncio.sleep(_CLAIM_SECONDS)


def _environment(here: Deployment, release: Release) -> dict[str, str]:
    own = environment_of(here.server.url, here.load, here.settings)
    return {**own, "STOOP_BUCKET": "images", **release.environment}


async def _versions(here: Deployment) -> dict[str, int]:
    """Count the workers by the version in their records."""
    operator = RedisOperator(here.server.url)
    try:
        return dict(Counter(str(each.facts["version"]) for each in await operator.workers()))
    finally:
        await operator.close()


async def _follow(here: Deployment, producers: list[_Producer]) -> None:
    """Copy the producers' records into the ledger of the case."""
    while True:
        await _note(here, producers)
        await asyncio.sleep(_POLL_SECONDS)


async def _note(here: Deployment, producers: list[_Producer]) -> None:
    for producer in producers:
        await here.ledger.accept(str(each["id"]) for each in producer.records(new=True) if each["what"] == "accepted")


def _facts(producers: list[_Producer], started: dict[int, str]) -> dict[str, object]:
    """Count the jobs of each producer by the release of the worker that ended them; fail on wrong answers."""
    pairs: Counter[str] = Counter()
    for producer in producers:
        answers = {str(each["id"]): each for each in producer.records() if each["what"] == "answered"}
        assert len(answers) == producer.count, f"{producer.path.stem}: {len(answers)} of {producer.count} answers"
        wrong = [each for each in answers.values() if not each["right"]]
        assert not wrong, f"wrong answers: {wrong[:3]}"
        for each in answers.values():
            [pid] = (pid for pid in re.findall(r"-(\d+)-", str(each["worker"])) if int(pid) in started)
            pairs[f"{producer.release.name} -> {started[int(pid)]}"] += 1
    assert len(pairs) == len(producers) ** 2, f"each release must run jobs of each: {pairs}"
    return {"jobs by producer and worker": dict(pairs), "starts of producers": [each.starts for each in producers]}
