"""The front's side against real child processes that run a scripted engine."""

import asyncio
import contextlib
import gc
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from stoop_worker.engine.request import Aborted, Caption, EnginePort, Finished, Output, Query, Request, TextDelta
from stoop_worker.engine_process.extents import whole_pages
from stoop_worker.engine_process.frames import send
from stoop_worker.engine_process.pixels import SharedPixels
from stoop_worker.engine_process.protocol import EngineSettings
from stoop_worker.engine_process.supervisor import SupervisedEngine, Supervision
from stoop_worker.errors import ConfigError, EngineFault
from stoop_worker.images import Crops, Image, Tiling
from tests.support import scripted_child

PROGRAM = (sys.executable, "-m", "tests.support.scripted_child")
SECONDS = 20.0  # how long a test waits before it fails
PHOTO_BYTES = whole_pages(60 * 85 * 3)
PATIENT = Supervision(max_faults=3, hang_seconds=60, restart_seconds=60)


class Front:
    """An engine process and all of its outputs."""

    def __init__(self, supervision: Supervision, program: Sequence[str], shared_pixels: SharedPixels) -> None:
        self.outputs: list[Output] = []
        self.lost: list[str] = []
        self.changed = asyncio.Condition()
        settings = EngineSettings(model="scripted")
        self.engine = SupervisedEngine(
            settings, self._deliver, self._on_engine_lost, supervision, program, shared_pixels
        )
        self.running: asyncio.Task[None] | None = None

    def _deliver(self, outputs: Sequence[Output]) -> None:
        self.outputs += outputs
        self._notify()

    def _on_engine_lost(self, request_ids: Sequence[str]) -> None:
        self.lost += request_ids
        self._notify()

    def _notify(self) -> None:
        task = asyncio.get_running_loop().create_task(self._notify_all())
        task.add_done_callback(lambda done: done.result())

    async def _notify_all(self) -> None:
        async with self.changed:
            self.changed.notify_all()

    async def until(self, met: Callable[[], bool]) -> None:
        async with self.changed, asyncio.timeout(SECONDS):
            await self.changed.wait_for(met)

    async def ended(self, *ids: str) -> None:
        await self.until(lambda: set(ids) <= {output.id for output in self.outputs if isinstance(output, Finished)})

    def ask(self, request_id: str, question: str) -> None:
        self.engine.submit(Request(request_id, Query(question)))

    @property
    def pid(self) -> int:
        assert self.engine._child is not None
        return self.engine._child.process.pid


@contextlib.asynccontextmanager
async def front(
    supervision: Supervision = PATIENT, *arguments: str, shared_pixels: SharedPixels | None = None
) -> AsyncIterator[Front]:
    front = Front(supervision, (*PROGRAM, *arguments), shared_pixels or SharedPixels())
    try:
        ready = await front.engine.start()
        assert ready.model == "scripted"
        assert front.engine.hang_seconds == (supervision.hang_seconds or 600)
        front.running = asyncio.create_task(front.engine.run())
        yield front
    finally:
        await front.engine.stop()
        if front.running:
            await asyncio.gather(front.running, return_exceptions=True)


def open_files() -> set[str]:
    return {path.name for path in Path("/proc/self/fd").iterdir()}


def crops(seed: int, count: int = 3) -> Crops:
    pixels = np.random.default_rng(seed).integers(0, 256, (count, 378, 378, 3), dtype=np.uint8)
    return Crops(pixels, Tiling(1, count - 1), bytes([seed]))


def photo(it: Front, seed: int) -> Image:
    """An image in the engine's shared file, if that has room."""
    pixels = it.engine.shared_pixels.empty((60, 85, 3))
    pixels[...] = np.random.default_rng(seed).integers(0, 256, pixels.shape, dtype=np.uint8)
    return Image(pixels, bytes([seed]))


async def test_a_child_reports_how_much_of_its_weights_it_has_read() -> None:
    async with front() as it:
        assert str(it.engine.loading) == "3.2 of 18.5 GB"


async def test_requests_go_down_and_outputs_come_up_in_order() -> None:
    async with front() as it:
        port: EnginePort = it.engine
        port.submit(Request("a", Query("hello")))
        await it.ended("a")
        assert it.outputs[0] == TextDelta("a", "hello")
        assert port.alive


async def test_pixels_arrive_as_they_were_and_leave_nothing_open() -> None:
    async with front() as it:
        requests = [Request(str(seed), Caption(), (crops(seed, count=2 + seed % 3),)) for seed in range(30)]
        before = open_files()
        for request in requests:
            it.engine.submit(request)
        await it.ended(*(request.id for request in requests))
        answers = {output.id: output.text for output in it.outputs if isinstance(output, Finished)}
        assert answers == {request.id: scripted_child.checksum(request) for request in requests}
        it.ask("sync", "done")  # both sides have let go of a request when the child answers a later one
        await it.ended("sync")
        assert open_files() <= before
        assert Path(f"/proc/{it.pid}/maps").read_text().count("memfd:pixels") == 1  # the shared file


async def test_pixels_in_the_shared_file_arrive_as_they_are_and_their_memory_comes_back() -> None:
    async with front(shared_pixels=SharedPixels(2 * PHOTO_BYTES)) as it:
        for number in range(9):
            for name in ("one", "other"):
                image = photo(it, seed=number + len(name))
                assert it.engine.shared_pixels.start_of(image.pixels) is not None
                request = Request(f"{name} {number}", Caption(), (image,))
                it.engine.submit(request)
                expected = scripted_child.checksum(request)
                del image, request
                await it.ended(f"{name} {number}")
                assert expected in {output.text for output in it.outputs if isinstance(output, Finished)}


@pytest.mark.parametrize("end", ["abort", "crash"])
async def test_memory_is_kept_until_the_engine_releases_it(end: str) -> None:
    async with front(shared_pixels=SharedPixels(PHOTO_BYTES)) as it:
        it.engine.submit(Request("a", Query("wait"), (photo(it, seed=1),)))
        await it.until(lambda: bool(it.outputs))
        assert it.engine.shared_pixels.start_of(photo(it, seed=2).pixels) is None
        if end == "abort":
            it.engine.abort("a")
            await it.until(lambda: Aborted("a") in it.outputs)
        else:
            os.kill(it.pid, signal.SIGKILL)
            await it.until(lambda: it.lost == ["a"])
        gc.collect()
        # the next child sees the same file
        request = Request("b", Caption(), (photo(it, seed=3),))
        assert it.engine.shared_pixels.start_of(request.media[0].pixels) is not None
        it.engine.submit(request)
        await it.ended("b")
        assert it.outputs[-1].text == scripted_child.checksum(request)


async def test_pixels_that_a_dead_child_did_not_take_are_free_while_the_next_one_loads() -> None:
    async with front(shared_pixels=SharedPixels(PHOTO_BYTES)) as it:
        os.kill(it.pid, signal.SIGSTOP)
        it.ask("long", "x" * (8 << 20))  # fills the socket, so that the next request stays behind
        it.engine.submit(Request("photo", Caption(), (photo(it, seed=1),)))
        it.engine.program = (sys.executable, "-c", "import time; time.sleep(600)")
        os.kill(it.pid, signal.SIGKILL)
        await it.until(lambda: it.lost == ["long", "photo"])
        try:
            async with asyncio.timeout(SECONDS):
                while it.engine.shared_pixels.start_of(photo(it, seed=2).pixels) is None:
                    await asyncio.sleep(0.01)
            assert not it.engine.running.is_set()
        finally:
            assert it.running is not None
            it.running.cancel()  # its child would never be ready


async def test_an_abort_ends_a_request_within_a_step() -> None:
    async with front() as it:
        it.ask("a", "wait")
        await it.until(lambda: bool(it.outputs))
        it.engine.abort("a")
        it.engine.abort("never seen")
        await it.until(lambda: Aborted("a") in it.outputs)
        it.ask("a", "again")
        await it.ended("a")


async def test_an_id_in_flight_is_the_callers_mistake() -> None:
    async with front() as it:
        it.ask("a", "wait")
        with pytest.raises(ValueError, match="in flight"):
            it.ask("a", "wait")


@pytest.mark.parametrize("question", ["die", "fault"])
async def test_a_crash_loses_the_requests_in_flight_and_no_others(question: str) -> None:
    async with front() as it:
        first = it.pid
        it.ask("done", "before")
        await it.ended("done")
        it.ask("beside", "wait")
        it.ask("poison", question)
        await it.until(lambda: bool(it.lost))
        assert it.lost == ["beside", "poison"]
        it.ask("after", "goes to the next child")
        await it.ended("after")
        assert it.pid != first
        assert it.engine.faults == 0, "an answer ends the row of faults"


async def test_a_killed_child_is_replaced_and_the_next_one_gets_the_waiting_requests() -> None:
    async with front() as it:
        it.ask("inside", "wait")
        await it.until(lambda: bool(it.outputs))
        os.kill(it.pid, signal.SIGKILL)
        await it.until(lambda: bool(it.lost))
        assert not it.engine.running.is_set()
        it.ask("waits", "x")
        it.ask("given up", "x")
        it.engine.abort("given up")
        await it.ended("waits")
        assert Aborted("given up") in it.outputs
        assert it.engine.running.is_set()


async def test_an_engine_without_progress_on_its_work_is_killed() -> None:
    async with front(Supervision(max_faults=3, hang_seconds=0.8, restart_seconds=60)) as it:
        it.ask("hung", "hang")
        await it.until(lambda: bool(it.lost))
        it.ask("after", "x")
        await it.ended("after")


async def test_a_stopped_child_counts_as_hung() -> None:
    async with front(Supervision(max_faults=3, hang_seconds=0.8, restart_seconds=60)) as it:
        os.kill(it.pid, signal.SIGSTOP)
        it.ask("a", "x")
        await it.until(lambda: bool(it.lost))
        it.ask("after", "x")
        await it.ended("after")


async def test_the_hang_seconds_fit_the_device() -> None:
    async with front(Supervision()):
        pass


async def test_a_long_job_with_progress_is_not_a_hang() -> None:
    async with front(Supervision(max_faults=3, hang_seconds=0.4, restart_seconds=60)) as it:
        it.ask("long", "sleep 1.2")
        await it.ended("long")
        assert it.lost == []


async def test_faults_in_a_row_end_it() -> None:
    async with front() as it:
        for fault in range(PATIENT.max_faults):
            await it.engine.running.wait()
            it.ask(str(fault), "die")
            await it.until(lambda fault=fault: str(fault) in it.lost)
        assert it.running is not None
        with pytest.raises(EngineFault, match="3 faults of the engine in a row"):
            await it.running
        assert not it.engine.alive
        with pytest.raises(EngineFault):
            it.ask("late", "x")


async def test_an_engine_that_cannot_be_built_again_counts_as_faults(tmp_path: Path) -> None:
    async with front(PATIENT, "--stillborn-after", str(tmp_path / "started")) as it:
        it.ask("poison", "die")
        assert it.running is not None
        with pytest.raises(EngineFault, match="before it was ready"):
            await it.running
        assert it.lost == ["poison"]


async def test_progress_grows_while_idle() -> None:
    async with front() as it:
        before = it.engine.progress
        async with asyncio.timeout(SECONDS):
            while it.engine.progress < before + 3:
                await asyncio.sleep(0)


async def test_a_model_that_does_not_load_is_reported_as_the_error_it_was() -> None:
    with pytest.raises(ConfigError, match="scripted is not fit"):
        async with front(PATIENT, "--unfit"):
            pass


async def test_a_first_child_that_ends_early_is_a_fault() -> None:
    with pytest.raises(EngineFault, match="exit code 3"):
        async with front(PATIENT, "--stillborn"):
            pass


async def test_the_kernel_short_of_memory_ends_the_child_before_the_front() -> None:
    async with front() as it:
        scores = [int(Path(f"/proc/{pid}/oom_score_adj").read_text()) for pid in (it.pid, "self")]
        assert scores[0] > scores[1]


async def test_the_child_knows_no_secret_of_the_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STOOP_REDIS_URL", "redis://:sesame@host")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "sesame")
    async with front() as it:
        assert b"sesame" not in Path(f"/proc/{it.pid}/environ").read_bytes()
        assert b"sesame" not in Path(f"/proc/{it.pid}/cmdline").read_bytes()


def test_a_child_whose_parent_reads_no_more_ends_without_a_traceback() -> None:
    ours, theirs = socket.socketpair()
    reading, writing = os.pipe()
    descriptors = (theirs.fileno(), writing)
    command = [*PROGRAM, *map(str, (os.getpid(), *descriptors))]
    child = subprocess.Popen(command, pass_fds=descriptors, stderr=subprocess.PIPE, text=True)
    theirs.close()
    os.close(writing)
    with ours, child, open(reading, "rb") as pipe:  # noqa: PTH123
        send(ours, EngineSettings(model="scripted"))
        pipe.read(1)
        pipe.close()
        _, output = child.communicate(timeout=SECONDS)
    assert output == ""


async def test_the_memory_of_an_ended_request_can_go_back_to_the_system() -> None:
    shared_pixels = SharedPixels(PHOTO_BYTES, kept=0)
    async with front(shared_pixels=shared_pixels) as it:
        it.engine.submit(Request("a", Caption(), (photo(it, seed=1),)))
        await it.ended("a")
        async with asyncio.timeout(SECONDS):
            while os.fstat(shared_pixels.file).st_blocks:
                shared_pixels.trim()
                await asyncio.sleep(0.05)


async def test_memory_that_no_image_uses_goes_back_to_the_system_by_itself() -> None:
    shared_pixels = SharedPixels(PHOTO_BYTES, kept=0)
    async with front(Supervision(hang_seconds=1.0), shared_pixels=shared_pixels) as it:
        photo(it, seed=1)
        async with asyncio.timeout(SECONDS):
            while os.fstat(shared_pixels.file).st_blocks:
                await asyncio.sleep(0.05)
