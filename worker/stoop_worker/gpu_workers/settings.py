"""The environment of each worker: the parent's settings, and those that differ between workers."""

import os
from collections.abc import Mapping
from pathlib import Path

from stoop_worker.config import WorkerConfig
from stoop_worker.gpu_workers.devices import Device
from stoop_worker.gpu_workers.member import LOOPBACK

__all__ = ["environment_of", "port_of"]

_MOST_IMAGE_THREADS = 8


def port_of(config: WorkerConfig, index: int) -> int | None:
    """Return the metrics port of one worker; the workers' ports follow the parent's own."""
    return None if config.metrics_port is None else config.metrics_port + 1 + index


def environment_of(
    config: WorkerConfig, flags: Mapping[str, object], device: Device, *, index: int, count: int, ready_file: Path
) -> dict[str, str]:
    """Return the environment of worker `index` of `count`; `flags` are those of the parent's command line.

    Numbers of threads that are not set, and the size of the adapter cache, are divided among the workers, so that
    together they use each core once.
    """
    given = {name: _text(value) for name, value in flags.items() if value is not None}
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    share = max(1, cores // count)
    own = {
        "gpus": "",
        "ready_file": str(ready_file),
        "metrics_host": LOOPBACK,  # only the parent reads them
        "metrics_port": _text(port_of(config, index) or ""),
        "image_threads": _text(config.image_threads or min(share, _MOST_IMAGE_THREADS)),
        # a worker keeps the adapters that it uses, and knows nothing of those that another uses
        "adapter_cache": str(config.adapter_cache / f"worker-{index}"),
        "adapter_cache_bytes": _text(max(1, config.adapter_cache_bytes // count)),
        "threads": _text(config.threads or (share if config.device == "cpu" else "")),
    }
    variables = {f"STOOP_{name.upper()}": value for name, value in {**given, **own}.items()}
    # otherwise CUDA numbers the GPUs by speed, and nvidia-smi by their place on the bus
    return {**os.environ, **variables, "CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": device.visible}


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
