"""The environment, the metrics and the probes of several workers as one."""

import asyncio
import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from stoop_worker.config import WorkerConfig
from stoop_worker.gpu_workers.devices import Device
from stoop_worker.gpu_workers.health import GroupHealth
from stoop_worker.gpu_workers.member import Member
from stoop_worker.gpu_workers.metrics import MergedMetrics, fetch, merge
from stoop_worker.gpu_workers.settings import environment_of, port_of
from tests.support.exposed import exposed_by_worker

TEXT = """# HELP stoop_tokens_total Tokens
# TYPE stoop_tokens_total counter
stoop_tokens_total{kind="output"} 3.0
# HELP stoop_step_seconds Steps
# TYPE stoop_step_seconds histogram
stoop_step_seconds_bucket{le="0.1"} 1.0
stoop_step_seconds_bucket{le="+Inf"} 2.0
stoop_step_seconds_count 2.0
stoop_step_seconds_sum 0.5
"""


class Scripted(Member):
    """A member whose process state a test sets."""

    runs = True
    killed = 0

    @property
    def running(self) -> bool:
        return self.runs

    def kill(self) -> None:
        self.killed += 1


def members(folder: Path) -> list[Scripted]:
    return [Scripted(Device(name, name), [], {}, folder / f"{name}.ready") for name in ("0", "1")]


def test_a_worker_gets_its_gpu_its_port_and_its_share_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _pid: set(range(12)), raising=False)
    config = WorkerConfig(
        model="m", metrics_port=9000, page_size=32, adapter_cache=Path("/tmp/a"), adapter_cache_bytes=9000
    )
    given = {"page_size": "32", "prefix_cache": False, "gpus": "all", "redis_url": None}
    found = environment_of(config, given, Device("1", "GPU-x"), index=1, count=3, ready_file=Path("/tmp/r"))
    assert (found["CUDA_VISIBLE_DEVICES"], found["CUDA_DEVICE_ORDER"]) == ("GPU-x", "PCI_BUS_ID")
    assert (found["STOOP_METRICS_PORT"], port_of(config, 1)) == ("9002", 9002)
    assert (found["STOOP_PAGE_SIZE"], found["STOOP_PREFIX_CACHE"], found["STOOP_READY_FILE"]) == (
        "32",
        "false",
        "/tmp/r",
    )
    assert (found["STOOP_GPUS"], found["STOOP_IMAGE_THREADS"], found["STOOP_THREADS"]) == ("", "4", "")
    assert (found["STOOP_ADAPTER_CACHE"], found["STOOP_ADAPTER_CACHE_BYTES"]) == ("/tmp/a/worker-1", "3000")
    assert "STOOP_REDIS_URL" not in {name for name, value in found.items() if value == "None"}


def test_the_metrics_of_workers_stay_apart_by_their_gpu() -> None:
    families = {family.name: family for family in merge({"0": TEXT, "1": TEXT.replace("3.0", "4.0")})}
    tokens = {sample.labels["gpu"]: sample.value for sample in families["stoop_tokens"].samples}
    assert tokens == {"0": 3.0, "1": 4.0}
    assert families["stoop_step_seconds"].type == "histogram"
    assert len(families["stoop_step_seconds"].samples) == 8


def test_a_worker_that_does_not_answer_is_shown_by_the_parents_own_metrics(tmp_path: Path) -> None:
    one, other = members(tmp_path)
    other.runs, other.restarted = False, 2
    registry = CollectorRegistry()
    registry.register(MergedMetrics([one, other], lambda member, _path: TEXT.encode() if member.running else None))
    assert registry.get_sample_value("stoop_tokens_total", {"gpu": "0", "kind": "output"}) == 3
    assert registry.get_sample_value("stoop_tokens_total", {"gpu": "1", "kind": "output"}) is None
    assert registry.get_sample_value("stoop_gpu_worker_running", {"gpu": "1"}) == 0
    assert registry.get_sample_value("stoop_gpu_worker_restarts_total", {"gpu": "1"}) == 2


def test_a_worker_that_ends_in_the_middle_of_its_answer_has_none(tmp_path: Path) -> None:
    one, _ = members(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor(1) as pool:
        one.port = server.getsockname()[1]
        answer = pool.submit(fetch, one, "/metrics")
        connection, _ = server.accept()
        with connection:
            connection.recv(65_536)
            connection.sendall(b"HTTP/1.0 200 OK\r\nContent-Length: 100\r\n\r\nstoop_")
        assert answer.result() is None


def test_no_metric_of_a_worker_has_the_label_of_the_gpu_already() -> None:
    assert not any("gpu" in labels for labels in exposed_by_worker().values())


def test_the_group_is_ready_while_any_worker_is_and_alive_while_any_may_run(tmp_path: Path) -> None:
    one, other = members(tmp_path)
    health = GroupHealth([one, other], lambda _member, _path: None)
    assert health.not_started() == "no worker has been ready yet"
    other.ready_file.touch()
    assert (health.not_ready(), health.not_started(), health.not_alive()) == (None, None, None)
    other.runs = False
    assert health.not_ready() == "no worker claims jobs"
    assert health.not_started() is None
    one.given_up = True
    assert health.not_alive() is None
    other.given_up = True
    assert health.not_alive() == "no GPU has a worker any more"


async def test_a_worker_that_was_well_and_is_stuck_is_ended_at_the_third_miss(tmp_path: Path) -> None:
    one, loading = members(tmp_path)
    answers: dict[str, bytes | None] = {"0": b"ok", "1": None}
    health = GroupHealth([one, loading], lambda member, _path: answers[member.device.name])
    await health.probe()
    answers["0"] = None
    for _ in range(2):
        await health.probe()
    assert one.killed == 0
    await health.probe()
    assert (one.killed, loading.killed) == (1, 0), "one that has not answered yet is loading"


async def test_a_defect_of_a_probe_is_logged_and_the_next_probe_comes(tmp_path: Path) -> None:
    one, _ = members(tmp_path)
    probes: list[int] = []
    probed_again = asyncio.Event()
    loop = asyncio.get_running_loop()

    def answers(_member: object, _path: str) -> bytes | None:
        probes.append(1)
        if len(probes) == 1:
            raise ZeroDivisionError("an unforeseen defect")
        loop.call_soon_threadsafe(probed_again.set)
        return b"ok"

    with capture_logs() as logs:
        running = asyncio.create_task(GroupHealth([one], answers, period=0.01).run())
        await asyncio.wait_for(probed_again.wait(), 20)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    assert [(log["log_level"], "could not be probed" in log["event"]) for log in logs] == [("error", True)]


async def test_a_worker_that_ended_between_two_probes_may_load_again(tmp_path: Path) -> None:
    one, _ = members(tmp_path)
    answers: list[bytes | None] = [b"ok"]
    health = GroupHealth([one], lambda _member, _path: answers[0])
    await health.probe()
    answers[0], one.restarted = None, 1
    for _ in range(3):
        await health.probe()
    assert one.killed == 0
