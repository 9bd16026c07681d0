"""The lock of a GPU, which a worker's process holds for its life."""

import fcntl
import hashlib
import os
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import structlog

from stoop_worker.gpu_workers.devices import Device

__all__ = ["DeviceLock", "lock_path"]

log = structlog.get_logger(__name__)


def lock_path(device: Device, model: str) -> Path:
    """Return the lock file for this user's workers of one model on one GPU, in the temporary folder.

    The model is part of the name because two parents may share a GPU between two models.
    """
    digest = hashlib.sha256(f"{device.visible}\n{model}".encode()).hexdigest()[:16]
    return Path(tempfile.gettempdir()) / f"stoop-gpu-{os.getuid()}-{digest}.lock"


@dataclass(slots=True)
class DeviceLock:
    """A `flock` that the parent takes and a worker inherits.

    The kernel frees it when the last process with the descriptor has ended, however it ended. The file stays: if it
    were removed, two processes could hold locks on two files of one name.
    """

    path: Path
    _descriptor: int | None = field(default=None, init=False)

    @property
    def descriptors(self) -> tuple[int, ...]:
        """The descriptors that a worker must inherit to hold the lock."""
        return () if self._descriptor is None else (self._descriptor,)

    def take(self) -> bool:
        """Return False while another process holds the lock. Without its file it returns True."""
        if self._descriptor is not None:
            return True
        try:
            descriptor = os.open(self.path, os.O_RDONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except OSError as error:
            log.warning("the lock file of a GPU cannot be opened", path=str(self.path), error=str(error))
            return True
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            return False
        self._descriptor = descriptor
        return True

    def close(self) -> None:
        """Close this process's descriptor; a worker that inherited the lock keeps it."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
