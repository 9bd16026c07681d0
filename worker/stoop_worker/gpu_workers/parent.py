"""Runs one worker for each GPU until a signal, then drains them all at once."""

import asyncio
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import structlog
from prometheus_client import CollectorRegistry

from stoop_worker.config import WorkerConfig
from stoop_worker.endpoints import serving
from stoop_worker.errors import ConfigError, PartEnded
from stoop_worker.gpu_workers.device_lock import DeviceLock, lock_path
from stoop_worker.gpu_workers.devices import Device, find_devices
from stoop_worker.gpu_workers.health import GroupHealth
from stoop_worker.gpu_workers.member import BAD_CONFIGURATION, Member, Restarts
from stoop_worker.gpu_workers.metrics import MergedMetrics, fetch
from stoop_worker.gpu_workers.settings import environment_of, port_of
from stoop_worker.shutdown import Shutdown
from stoop_worker.vital import cancel_until_ended

__all__ = ["PROGRAM", "serve_gpus"]

log = structlog.get_logger(__name__)

PROGRAM = (sys.executable, "-m", "stoop_worker.gpu_workers.program")
"""The command line of one worker; the parent's process id and the GPU's name follow."""

_LATE_SECONDS = 20.0  # the longest that a draining worker may take to end after its grace period


def serve_gpus(
    config: WorkerConfig,
    flags: Mapping[str, object],
    *,
    program: Sequence[str] = PROGRAM,
    restarts: Restarts | None = None,
) -> None:
    """Run the workers until SIGTERM or SIGINT; raises `WorkerError`.

    The first signal drains all workers within one grace; the second ends them. `ConfigError` if no worker could start
    because of the configuration, `PartEnded` if every GPU has lost its worker for good, or one did not drain.
    """
    devices = find_devices(config.gpus)
    with tempfile.TemporaryDirectory(prefix="stoop-gpus-") as folder:
        members = _members(config, flags, devices, program, Path(folder))
        for member in members:
            member.restarts = restarts or member.restarts
        codes = asyncio.run(_serve(config, members))
    if all(code == BAD_CONFIGURATION for code in codes):
        raise ConfigError("no worker can start: see the lines above")
    if any(codes):
        ended = ", ".join(f"{device.name}: {code}" for device, code in zip(devices, codes, strict=True))
        raise PartEnded(f"workers ended with an error (GPU: exit code): {ended}")


def _members(
    config: WorkerConfig,
    flags: Mapping[str, object],
    devices: Sequence[Device],
    program: Sequence[str],
    folder: Path,
) -> list[Member]:
    members = []
    for index, device in enumerate(devices):
        ready_file = folder / f"{index}.ready"
        environment = environment_of(config, flags, device, index=index, count=len(devices), ready_file=ready_file)
        command = [*program, str(os.getpid()), device.name]
        port, wait_seconds = port_of(config, index), config.drain_seconds + _LATE_SECONDS
        lock = DeviceLock(lock_path(device, config.model))
        members.append(Member(device, command, environment, ready_file, port, wait_seconds, lock))
    return members


async def _serve(config: WorkerConfig, members: Sequence[Member]) -> list[int]:
    def stop_all() -> None:
        for member in members:
            member.stop()

    shutdown = Shutdown(grace=config.drain_seconds)
    registry = CollectorRegistry()
    registry.register(MergedMetrics(members))
    health = GroupHealth(members, fetch, config.ready_file)
    with serving(config.metrics_port, registry, health, host=config.metrics_host):
        watching = asyncio.create_task(health.run(), name="health")
        try:
            shutdown.on_signals(stop_all, stop_all)
            log.info("starting workers", gpus=[member.device.name for member in members])
            return await asyncio.gather(*(member.run() for member in members))
        finally:
            await cancel_until_ended({watching})
            shutdown.close()
