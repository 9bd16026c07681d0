"""The conditions under which a worker is alive, has started and is ready."""

import asyncio
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from stoop_worker.engine_process.protocol import Loading
from stoop_worker.health import Health


@dataclass
class Engine:
    alive: bool = True
    running: asyncio.Event = field(default_factory=asyncio.Event)
    loading: Loading | None = None


@dataclass
class Outage:
    seconds: float = 0.0


@dataclass
class Clock:
    now: float = 0.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Worker:
    """A worker that claims jobs, and the parts that decide its health."""

    file: Path
    engine: Engine = field(default_factory=Engine)
    outage: Outage = field(default_factory=Outage)
    clock: Clock = field(default_factory=Clock)

    def __post_init__(self) -> None:
        self.health = Health(self.engine, self.outage, lease=15.0, ready_file=self.file, clock=self.clock)
        self.health.started()
        self.engine.running.set()
        self.health.claims_as("gpu-1-7")


@pytest.fixture
def worker(tmp_path: Path) -> Worker:
    return Worker(tmp_path / "ready")


async def turn(worker: Worker) -> None:
    """Let the event loop turn once."""
    turning = asyncio.create_task(worker.health.run())
    await asyncio.sleep(0)
    turning.cancel()
    await asyncio.gather(turning, return_exceptions=True)


def test_before_the_model_is_loaded_it_is_only_alive(tmp_path: Path) -> None:
    health = Health(Engine(), Outage(), lease=15.0, ready_file=tmp_path / "ready")
    assert health.not_alive() is None
    assert health.not_started() == health.not_ready() == "the model is being loaded"
    health.started()
    assert health.not_started() is None
    assert health.not_ready() == "the worker has not begun to claim, or has stopped"


def test_the_startup_message_has_the_progress_of_loading(tmp_path: Path) -> None:
    health = Health(Engine(loading=Loading(3_250_000_000, 18_500_000_000)), Outage(), lease=15.0)
    assert health.not_started() == "the model is being loaded: 3.2 of 18.5 GB"
    health.started()
    assert health.not_started() is None


async def test_a_worker_that_claims_is_ready_and_its_file_has_its_name(worker: Worker) -> None:
    assert worker.health.not_ready() is None
    assert worker.file.read_text() == "gpu-1-7\n"
    worker.health.claims_as(None)
    assert worker.health.not_ready() is not None, "it drains"
    assert not worker.file.exists()
    assert worker.health.not_alive() is None


async def test_an_outage_longer_than_the_lease_ends_readiness_but_not_liveness(worker: Worker) -> None:
    worker.outage.seconds = 15.0
    await turn(worker)
    assert worker.health.not_ready() is None
    worker.outage.seconds = 16.0
    await turn(worker)
    assert worker.health.not_ready() == "Redis has not been available for 16 s"
    assert not worker.file.exists()
    assert worker.health.not_alive() is None
    worker.outage.seconds = 0.0
    await turn(worker)
    assert worker.health.not_ready() is None
    assert worker.file.read_text() == "gpu-1-7\n"


async def test_while_the_engine_is_replaced_it_is_alive_and_not_ready(worker: Worker) -> None:
    worker.engine.running.clear()
    assert worker.health.not_ready() == "the engine is being replaced"
    assert worker.health.not_alive() is None
    worker.engine.alive = False
    assert worker.health.not_alive() == "the engine has ended"


async def test_an_event_loop_that_is_stuck_is_not_alive(worker: Worker) -> None:
    worker.clock.now += 31.0
    assert worker.health.not_alive() == "the event loop has not turned for 30 s"
    await turn(worker)
    assert worker.health.not_alive() is None


async def test_a_ready_file_that_cannot_be_written_does_not_stop_the_worker(tmp_path: Path) -> None:
    with capture_logs() as logs:
        worker = Worker(tmp_path / "no folder" / "ready")
        for _ in range(2):
            await turn(worker)
    assert worker.health.not_ready() is None
    assert [entry["event"] for entry in logs] == ["the ready file cannot be kept"], "once, not every second"
