import asyncio
import itertools
import shutil
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stoop.bulk.budget import Budget
from stoop.bulk.output.output_folder import opened
from stoop.bulk.progress import Counts
from stoop.bulk.row import Ask, Row
from stoop.bulk.run import Limits, Run
from stoop.bulk.sources import Source
from stoop.errors import (
    ConfigError,
    InvalidJob,
    OutputGone,
    OutputUnreadable,
    QueueFull,
    QueueUnavailable,
    StoopError,
    TimedOut,
    UploadFailed,
)
from stoop_schemas.failure import Failure, FailureCode
from stoop_schemas.job import Job
from tests.bulk.folder import IDENTITY, lines, ramdisk, rows
from tests.bulk.scripted import BROKEN, Queue

LIMITS = Limits()
ASK = Ask("query", {"question": "what is this?"})


@dataclass
class Numbered:
    """A source of `count` rows, every `bad`-th one broken; counts the rows read."""

    count_: int
    bad: int = 1 << 30
    read: int = 0

    @property
    def facts(self) -> Mapping[str, Any]:
        return IDENTITY.source

    def rows(self) -> Iterator[Row]:
        for number in range(1, self.count_ + 1):
            self.read += 1
            yield Row(str(number), image=f"s3://photos/{BROKEN if number % self.bad == 0 else 'cat'}-{number}.jpg")

    def count(self) -> int:
        return self.count_


@dataclass
class Rows:
    """A source of the rows given."""

    given: list[Row]
    facts = IDENTITY.source

    def rows(self) -> Iterator[Row]:
        yield from self.given

    def count(self) -> int:
        return len(self.given)


class Silent:
    """A `Display` that remembers its notes."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def show(self, counts: Counts) -> None:
        pass

    def note(self, text: str) -> None:
        self.notes.append(text)

    def close(self) -> None:
        pass


async def go(
    folder: Path, source: Source, queue: Queue, limits: Limits = LIMITS, *, again: bool = False, ask: Ask = ASK
) -> tuple[Run, Silent]:
    display = Silent()
    with opened(folder, IDENTITY, again=again) as output:
        run = Run(source, output, display, limits)
        await run.go(queue, ask, "bulk")
    for thread in threading.enumerate():
        if thread.name == "stoop-count":
            thread.join()
    return run, display


async def test_every_row_gets_its_line(tmp_path: Path) -> None:
    queue = Queue()
    run, _ = await go(tmp_path, Numbered(1000, bad=10), queue)
    assert sorted(map(int, rows(tmp_path, "results-*"))) == [number for number in range(1, 1001) if number % 10]
    assert sorted(map(int, rows(tmp_path, "errors.jsonl"))) == list(range(10, 1001, 10))
    assert (run.counts.done, run.counts.failed, run.counts.tokens) == (900, 100, 2700)
    assert run.counts.total == 1000
    assert {job.lane for job in queue.jobs.values()} == {"bulk"}
    assert max(queue.calls) > 1


async def test_no_more_rows_are_on_their_way_than_the_window_holds(tmp_path: Path) -> None:
    queue, source = Queue(), Numbered(5000)
    first = asyncio.Event()
    answers = asyncio.Semaphore(0)

    async def hold(job: Job) -> None:
        if queue.waiting == 8:
            first.set()
        await answers.acquire()

    queue.before_answer = hold
    going = asyncio.create_task(go(tmp_path, source, queue, Limits(window=8)))
    await first.wait()
    assert len(queue.jobs) == 8
    assert source.read < 1000, "the source is read no further than it must"
    for _ in range(5000):
        answers.release()
    await going
    assert queue.most_waiting == 8
    assert len(rows(tmp_path)) == 5000


async def test_few_images_are_read_and_uploaded_at_once(tmp_path: Path) -> None:
    class Store(Queue):
        uploading = most = 0

        async def prepare(self, skill: str, image: Any = None, *, settings: Any = None, **fields: Any) -> Job:
            self.uploading += 1
            self.most = max(self.most, self.uploading)
            for _ in range(3):
                await asyncio.sleep(0)
            self.uploading -= 1
            return await super().prepare(skill, image, settings=settings, **fields)

    queue = Store()
    await go(tmp_path, Rows([Row(str(number), image=Path(f"{number}.jpg")) for number in range(100)]), queue)
    assert len(rows(tmp_path, "results-*")) == 100
    assert 1 < queue.most <= 16


async def test_a_full_queue_takes_the_rest_of_a_batch_later(tmp_path: Path) -> None:
    class Bounded(Queue):
        refused = asyncio.Event()

        async def submit_many(self, jobs: Any) -> list[str]:
            if len(self.jobs) - self.answered + len(jobs) > 10:
                self.refused.set()
                raise QueueFull(0.01)
            return await super().submit_many(jobs)

    queue = Bounded()

    async def answer_once_refused(job: Job) -> None:
        await queue.refused.wait()

    queue.before_answer = answer_once_refused
    _, display = await go(tmp_path, Numbered(100), queue)
    assert "the queue is full; retrying in 0.01 s" in display.notes
    assert queue.most_waiting <= 10
    assert Counter(rows(tmp_path)) == Counter(map(str, range(1, 101)))


async def test_a_stopped_run_does_not_wait_for_room(tmp_path: Path) -> None:
    class Full(Queue):
        async def submit_many(self, jobs: Any) -> list[str]:
            run.stop.ask("interrupted")
            raise QueueFull(3600.0)

    with opened(tmp_path, IDENTITY) as output:
        run = Run(Numbered(3), output, Silent(), LIMITS)
        await run.go(Full(), ASK, "bulk")
    assert run.stopped == "interrupted", "its rows remain for the next session"
    assert rows(tmp_path) == []


async def test_one_refused_job_takes_no_other_with_it(tmp_path: Path) -> None:
    class Choosy(Queue):
        async def submit_many(self, jobs: Any) -> list[str]:
            if any("cat-7." in job.image for job in jobs):
                raise InvalidJob(Failure.of(FailureCode.IMAGE_FORBIDDEN, "not yours"))
            return await super().submit_many(jobs)

    await go(tmp_path, Numbered(20), Choosy())
    [error] = lines(tmp_path, "errors.jsonl")
    assert (error["row"], error["failure"]["code"]) == ("7", "image_forbidden")
    assert len(rows(tmp_path, "results-*")) == 19


async def test_a_queue_that_goes_away_for_a_while_is_borne(tmp_path: Path) -> None:
    queue = Queue()

    async def go_away(job: Job) -> None:
        queue.before_answer = None
        queue.refusals.append(QueueUnavailable("Redis takes nothing"))
        queue.losses.append(QueueUnavailable("Redis tells nothing"))

    queue.before_answer = go_away
    _, display = await go(tmp_path, Numbered(30), queue, Limits(window=4))
    assert len(rows(tmp_path, "results-*")) == 30
    assert {"Redis takes nothing; trying again", "Redis tells nothing; trying again"} <= set(display.notes)


async def test_a_job_that_the_queue_has_forgotten_is_put_there_again(tmp_path: Path) -> None:
    queue = Queue()

    async def forget(job: Job) -> None:
        queue.before_answer = None
        queue.jobs.clear()
        raise TimedOut(job.id, 600)

    queue.before_answer = forget
    await go(tmp_path, Numbered(1), queue)
    assert queue.calls == [1, 1]
    assert rows(tmp_path, "results-*") == ["1"]


async def test_a_forgotten_job_waits_for_room_like_any_other(tmp_path: Path) -> None:
    queue = Queue()

    async def forget(job: Job) -> None:
        queue.before_answer = None
        queue.jobs.clear()
        queue.refusals.append(QueueFull(0.01))
        raise TimedOut(job.id, 600)

    queue.before_answer = forget
    await go(tmp_path, Numbered(1), queue)
    assert queue.calls == [1, 1, 1]
    assert rows(tmp_path, "results-*") == ["1"]


async def test_a_hopeless_run_is_stopped(tmp_path: Path) -> None:
    queue = Queue()
    run, _ = await go(tmp_path, Numbered(10_000, bad=2), queue, Limits(window=16, budget=Budget(share=0.1)))
    assert run.stop.reason == "max_failures"
    assert 100 <= len(rows(tmp_path)) < 400
    again, _ = await go(
        tmp_path, Numbered(10_000, bad=2), queue, Limits(window=16, budget=Budget(count=60)), again=True
    )
    assert again.stop.reason == "max_failures"
    assert 60 < len(rows(tmp_path, "errors.jsonl")) < 100


async def test_a_stopped_run_waits_for_jobs_in_flight_and_can_be_resumed(tmp_path: Path) -> None:
    queue = Queue()
    answers = asyncio.Semaphore(0)
    waiting = asyncio.Event()

    async def hold(job: Job) -> None:
        if queue.waiting == 16:
            waiting.set()
        await answers.acquire()

    queue.before_answer = hold
    with opened(tmp_path, IDENTITY) as output:
        run = Run(Numbered(100), output, Silent(), Limits(window=16))
        going = asyncio.create_task(run.go(queue, ASK, "bulk"))
        await waiting.wait()
        run.stop.ask("interrupted")
        assert run.in_flight == 16
        for _ in range(200):
            answers.release()
        await going
    assert len(rows(tmp_path)) == 16
    again, _ = await go(tmp_path, Numbered(100), queue)
    assert again.counts.skipped == 16
    assert Counter(rows(tmp_path)) == Counter(map(str, range(1, 101)))
    assert set(queue.runs.values()) == {1}


@settings(max_examples=30)
@given(kills=st.lists(st.integers(1, 60), min_size=1, max_size=3))
def test_a_killed_run_is_resumed_and_no_job_runs_twice(kills: list[int]) -> None:
    queue, source = Queue(), Numbered(60, bad=9)

    async def run(folder: Path, copy: Path, kill: int) -> None:
        """Copy the folder at the `kill`-th answer, as a killed process leaves it."""
        answered = 0

        async def copy_at(job: Job) -> None:
            nonlocal answered
            answered += 1
            if answered == kill:
                shutil.copytree(folder, copy)

        queue.before_answer = copy_at
        await go(folder, source, queue, Limits(window=7))
        if answered < kill:
            shutil.copytree(folder, copy)

    with ramdisk() as home:
        for number, kill in enumerate(kills):
            asyncio.run(run(Path(home, str(number)), Path(home, str(number + 1)), kill))
        queue.before_answer = None
        last = Path(home, str(len(kills)))
        asyncio.run(go(last, source, queue))
        assert Counter(rows(last)) == Counter(map(str, range(1, 61)))
        assert len(rows(last, "errors.jsonl")) == 6
    assert len(queue.runs) == 60
    assert set(queue.runs.values()) == {1}


async def test_failed_jobs_run_again_on_request(tmp_path: Path) -> None:
    queue = Queue()
    await go(tmp_path, Numbered(20, bad=4), queue)
    await go(tmp_path, Numbered(20, bad=4), queue)
    assert set(queue.runs.values()) == {1}
    await go(tmp_path, Numbered(20, bad=4), queue, again=True)
    assert {image: count for image, count in queue.runs.items() if BROKEN in image} == {
        f"s3://photos/{BROKEN}-{number}.jpg": 2 for number in range(4, 21, 4)
    }
    assert len(rows(tmp_path, "errors.jsonl")) == 5


async def test_malformed_rows_fail_alone(tmp_path: Path) -> None:
    problem = Failure.of(FailureCode.MALFORMED, "not JSON")
    good = Row("good", image="s3://photos/cat.jpg")
    given = [
        Row("torn", problem=problem, fields={"custom_id": "mine"}),
        good,
        replace(good, name="no skill"),
        replace(good, name="own", skill="detect", fields={"object": "cat", "custom_id": "c-1"}),
        replace(good, name="odd", skill="dance"),
        replace(good, name="hot", skill="caption", settings={"temperature": 99}),
    ]
    await go(tmp_path, Rows(given), Queue(), ask=Ask(None, {"question": "?"}))
    failed = {line["row"]: (line["id"], line["failure"]["code"]) for line in lines(tmp_path, "errors.jsonl")}
    assert failed == {
        "torn": ("mine", "malformed"),
        "good": ("good", "malformed"),
        "no skill": ("no skill", "malformed"),
        "odd": ("odd", "unsupported_skill"),
        "hot": ("hot", "invalid_argument"),
    }
    [answered] = lines(tmp_path, "results-*")
    assert (answered["id"], answered["object"]) == ("c-1", "cat")


@pytest.mark.parametrize(
    "error", [ConfigError("no bucket to upload images to"), QueueUnavailable("refuses this client")]
)
async def test_an_error_that_ends_the_run_is_raised_and_finished_rows_are_kept(
    tmp_path: Path, error: StoopError
) -> None:

    class Refusing(Queue):
        async def prepare(self, skill: str, image: Any = None, *, settings: Any = None, **fields: Any) -> Job:
            if "cat-9." in image:
                raise error
            return await super().prepare(skill, image, settings=settings, **fields)

    with pytest.raises(type(error), match=str(error)):
        await go(tmp_path, Numbered(9), Refusing(), Limits(window=1, outage_seconds=0.0))
    assert len(rows(tmp_path, "results-*")) == 8


async def test_a_source_that_fails_ends_the_run_after_the_jobs_in_flight(tmp_path: Path) -> None:
    class Breaking(Numbered):
        def rows(self) -> Iterator[Row]:
            yield from itertools.islice(super().rows(), 300)
            raise UploadFailed("the object store does not answer")

    with pytest.raises(UploadFailed):
        await go(tmp_path, Breaking(400), Queue())
    assert len(rows(tmp_path, "results-*")) == 256
    run, _ = await go(tmp_path, Numbered(400), Queue())
    assert run.counts.skipped == 256
    assert run.stopped is None


async def test_a_run_stopped_after_the_last_row_is_complete(tmp_path: Path) -> None:
    queue = Queue()
    run = None

    async def stop_at_last(job: Job) -> None:
        if len(queue.jobs) == 5 and "cat-5." in (job.image or ""):
            assert run is not None
            run.stop.ask("interrupted")

    queue.before_answer = stop_at_last
    with opened(tmp_path, IDENTITY) as output:
        run = Run(Numbered(5), output, Silent(), LIMITS)
        await run.go(queue, ASK, "bulk")
    assert (run.stop.reason, run.stopped) == ("interrupted", None)
    assert len(rows(tmp_path)) == 5


async def test_only_the_first_rows_are_run_if_no_more_are_wanted(tmp_path: Path) -> None:
    run, _ = await go(tmp_path, Numbered(100), Queue(), Limits(rows=10))
    assert rows(tmp_path, "results-*") == [str(number) for number in range(1, 11)]
    assert run.counts.total == 10


@pytest.mark.parametrize(
    ("loss", "code"),
    [
        (OutputGone("some"), "storage_unavailable"),
        (OutputUnreadable("some", "the output of job some cannot be read"), "internal"),
    ],
)
async def test_an_answer_that_cannot_be_read_fails_its_row_alone(tmp_path: Path, loss: StoopError, code: str) -> None:
    queue = Queue()
    queue.losses = [loss]
    run, _ = await go(tmp_path, Numbered(3), queue, Limits(window=1, outage_seconds=0.0))
    assert (run.stopped, len(rows(tmp_path, "results-*"))) == (None, 2)
    [lost] = lines(tmp_path, "errors*")
    assert lost["failure"] == {"code": code, "message": str(loss), "retryable": True}
