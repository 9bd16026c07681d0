"""Restarts of a worker's process, and the end of restarts."""

import asyncio
import os
import socket
import sys
from pathlib import Path

from structlog.testing import capture_logs

from stoop_worker.gpu_workers.device_lock import DeviceLock, lock_path
from stoop_worker.gpu_workers.devices import Device
from stoop_worker.gpu_workers.member import Member, Restarts

QUICK = Restarts(first=0.001, longest=0.001, most=3)
# notes each start in the file of its first argument, then does what the second says
PROGRAM = """
import pathlib, signal, sys
notes = pathlib.Path(sys.argv[1])
with notes.open("a") as file:
    file.write("started\\n")
if sys.argv[2] == "wait":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    pathlib.Path(sys.argv[3]).touch()
    signal.pause()
sys.exit(int(sys.argv[2]))
"""


def member(folder: Path, *does: str, restarts: Restarts = QUICK) -> Member:
    folder.mkdir(exist_ok=True)
    command = [sys.executable, "-c", PROGRAM, str(folder / "notes"), *does, str(folder / "ready")]
    return Member(Device("0", "0"), command, os.environ, folder / "ready", restarts=restarts)


def starts(folder: Path) -> int:
    return len((folder / "notes").read_text().splitlines())


async def until_ready(one: Member) -> None:
    async with asyncio.timeout(60):
        while not one.ready:
            await asyncio.sleep(0.01)


async def test_a_worker_that_fails_is_started_again_until_it_is_given_up(tmp_path: Path) -> None:
    one = member(tmp_path, "1")
    assert await one.run() == 1
    assert starts(tmp_path) == 3
    assert (one.restarted, one.given_up, one.running) == (2, True, False)


async def test_a_worker_whose_configuration_is_wrong_is_not_started_again(tmp_path: Path) -> None:
    one = member(tmp_path, "2")
    assert await one.run() == 2
    assert (starts(tmp_path), one.given_up) == (1, True)


async def test_failures_after_a_long_run_are_counted_from_zero(tmp_path: Path) -> None:
    one = member(tmp_path, "1", restarts=Restarts(first=0.001, longest=0.001, most=2, healthy=0.0))
    running = asyncio.create_task(one.run())
    async with asyncio.timeout(60):
        while one.restarted < 3:
            await asyncio.sleep(0.01)
    one.stop()
    await running
    assert not one.given_up


async def test_a_stop_drains_and_starts_nothing_again(tmp_path: Path) -> None:
    one = member(tmp_path, "wait")
    running = asyncio.create_task(one.run())
    await until_ready(one)
    one.stop()
    assert await running == 0
    assert (starts(tmp_path), one.given_up, one.ready) == (1, False, False)


async def test_a_worker_starts_when_its_port_is_free(tmp_path: Path) -> None:
    with capture_logs() as logs, socket.create_server(("127.0.0.1", 0)) as taken:
        one = member(tmp_path, "wait")
        one.port = taken.getsockname()[1]
        running = asyncio.create_task(one.run())
        async with asyncio.timeout(60):
            while not any("port" in line.get("reason", "") for line in logs):
                await asyncio.sleep(0.01)
        assert not (tmp_path / "notes").exists()
    await until_ready(one)
    one.stop()
    assert (await running, one.given_up) == (0, False)


async def test_a_worker_starts_when_the_worker_of_an_earlier_parent_has_left_its_gpu(tmp_path: Path) -> None:
    earlier, later = member(tmp_path / "earlier", "wait"), member(tmp_path / "later", "wait")
    for one in (earlier, later):
        one.lock = DeviceLock(tmp_path / "lock")
    draining = asyncio.create_task(earlier.run())
    await until_ready(earlier)
    with capture_logs() as logs:
        waiting = asyncio.create_task(later.run())
        async with asyncio.timeout(60):
            while not any("GPU" in line.get("reason", "") for line in logs):
                await asyncio.sleep(0.01)
    assert not (tmp_path / "later" / "notes").exists()
    earlier.stop()
    assert await draining == 0
    await until_ready(later)
    later.stop()
    assert (await waiting, starts(tmp_path / "later"), later.given_up) == (0, 1, False)


async def test_a_stop_ends_the_wait_for_a_port(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        one = member(tmp_path, "2")
        one.port, one.wait_seconds, one.lock = taken.getsockname()[1], 3600.0, DeviceLock(tmp_path / "lock")
        running = asyncio.create_task(one.run())
        await asyncio.sleep(0)
        one.stop()
        assert await asyncio.wait_for(running, 60) == 0
    assert not (tmp_path / "notes").exists()
    assert DeviceLock(tmp_path / "lock").take(), "it keeps no lock"


async def test_a_failure_without_its_gpu_or_its_port_is_tried_again(tmp_path: Path) -> None:
    lock = DeviceLock(tmp_path / "lock")
    assert lock.take()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        for folder, held, port in (("gpu", lock.path, None), ("port", tmp_path / "free", taken.getsockname()[1])):
            one = member(tmp_path / folder, "2")
            one.lock, one.port, one.wait_seconds = DeviceLock(held), port, 0.0
            assert await one.run() == 2
            assert (starts(tmp_path / folder), one.given_up) == (3, True)
    lock.close()


async def test_a_lock_file_that_cannot_be_opened_delays_nothing(tmp_path: Path) -> None:
    one = member(tmp_path, "2")
    one.lock = DeviceLock(tmp_path / "absent" / "lock")
    with capture_logs() as logs:
        assert await one.run() == 2
    assert starts(tmp_path) == 1
    assert any("cannot be opened" in line["event"] for line in logs)


def test_each_gpu_and_each_model_has_its_own_lock() -> None:
    gpus = [Device("0", "0"), Device("1", "MIG-GPU-1a2b/1/0")]
    paths = {lock_path(gpu, model) for gpu in gpus for model in ("a/b", "c")}
    assert len(paths) == 4
    assert len({path.parent for path in paths}) == 1


async def test_a_stop_ends_the_wait_for_another_start(tmp_path: Path) -> None:
    one = member(tmp_path, "1", restarts=Restarts(first=3600.0, longest=3600.0))
    running = asyncio.create_task(one.run())
    async with asyncio.timeout(60):
        while not (tmp_path / "notes").exists() or one.running:
            await asyncio.sleep(0.01)
    one.stop()
    assert await asyncio.wait_for(running, 60) in (0, 1)


async def test_a_killed_worker_is_started_again_and_its_ready_file_removed(tmp_path: Path) -> None:
    one = member(tmp_path, "wait")
    running = asyncio.create_task(one.run())
    await until_ready(one)
    one.kill()
    async with asyncio.timeout(60):
        while one.restarted == 0:
            await asyncio.sleep(0.01)
    await until_ready(one)
    one.stop()
    assert await running == 0
    assert starts(tmp_path) == 2
