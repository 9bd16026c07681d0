"""The LoRA adapters of running jobs: fetched once each, into a folder of bounded size that the engine reads."""

import asyncio
import contextlib
import os
import tempfile
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

import structlog

from stoop_schemas.failure import FailureCode, Rejected

__all__ = ["AdapterCache", "AdapterFetch"]

log = structlog.get_logger(__name__)

_ARCHIVE: Final = b"PK"  # the first bytes of torch's own files
_SUFFIXES: Final = (".safetensors", ".pt")


class AdapterFetch(Protocol):
    """Brings the bytes of an adapter."""

    async def fetch(self, adapter: str) -> bytes:
        """Return the file of this id; raises `Rejected`."""


@dataclass(slots=True)
class _Use:
    """An adapter that jobs wait for or use."""

    work: "asyncio.Task[None]"
    users: int = 0


class AdapterCache:
    """A folder of adapters, at most `max_bytes` in all: the ones used longest ago make room for others.

    An adapter that a job uses stays. Jobs of at most `resident` adapters run at a time, as many as the engine holds;
    those of another wait. An id stands for one version: a file is fetched again only after it was removed.
    """

    def __init__(self, source: AdapterFetch, folder: Path, *, max_bytes: int, resident: int) -> None:
        self._source = source
        self._folder = folder
        self._max_bytes = max_bytes
        self._room = asyncio.Semaphore(resident)
        self._uses: dict[str, _Use] = {}
        self._change = asyncio.Lock()  # a file that was just found must not make room for another

    @contextlib.asynccontextmanager
    async def ready(self, adapter: str | None) -> AsyncIterator[None]:
        """Wait until the adapter lies in the folder, and keep it there for this job; raises `Rejected`."""
        if adapter is None:
            yield
            return
        use = self._uses.get(adapter)
        if use is None:
            use = self._uses[adapter] = _Use(asyncio.create_task(self._bring(adapter)))
        use.users += 1
        try:
            await asyncio.shield(use.work)
            yield
        finally:
            use.users -= 1
            if not use.users:
                del self._uses[adapter]
                use.work.add_done_callback(self._end)
                use.work.cancel()

    def _end(self, work: "asyncio.Task[None]") -> None:
        if not work.cancelled() and work.exception() is None:
            self._room.release()

    async def _bring(self, adapter: str) -> None:
        await self._room.acquire()
        try:
            async with self._change:
                is_there = self._is_there(adapter)
            if not is_there:
                fetched = await self._source.fetch(adapter)
                async with self._change:
                    await asyncio.to_thread(self._keep, adapter, fetched, frozenset(self._uses))
        except BaseException:
            self._room.release()
            raise

    def _is_there(self, adapter: str) -> bool:
        """Return whether the adapter lies in the folder, and note its use in the file's time."""
        for suffix in _SUFFIXES:
            with contextlib.suppress(FileNotFoundError):
                os.utime(self._folder / f"{adapter}{suffix}")
                return True
        return False

    def _keep(self, adapter: str, fetched: bytes, in_use: frozenset[str]) -> None:
        if len(fetched) > self._max_bytes:
            raise Rejected(
                FailureCode.INVALID_ARGUMENT,
                f"the adapter {adapter!r} has {len(fetched)} bytes, over the worker's --adapter-cache-bytes",
            )
        suffix = _SUFFIXES[fetched.startswith(_ARCHIVE)]
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._make_room(self._max_bytes - len(fetched), in_use)
            _write(self._folder / f"{adapter}{suffix}", fetched)
        except OSError as error:
            raise Rejected(
                FailureCode.STORAGE_UNAVAILABLE, f"the adapter {adapter!r} cannot be kept: {error.strerror}"
            ) from error
        log.info("adapter fetched", adapter=adapter, bytes=len(fetched))

    def _make_room(self, most: int, in_use: frozenset[str]) -> None:
        """Remove adapters that no job uses, the ones used longest ago first, until the others fit into `most` bytes."""
        files = [(path.stat(), path) for path in self._folder.iterdir() if path.suffix in _SUFFIXES]
        held = sum(found.st_size for found, _ in files)
        for found, path in sorted(files, key=lambda file: file[0].st_mtime_ns):
            if held <= most:
                return
            if path.stem not in in_use:
                path.unlink(missing_ok=True)
                held -= found.st_size


def _write(path: Path, content: bytes) -> None:
    """Write a file that is there whole or not at all."""
    with tempfile.NamedTemporaryFile(dir=path.parent, suffix=".part", delete=False) as part:
        try:
            part.write(content)
            part.flush()
            Path(part.name).replace(path)
        except BaseException:
            Path(part.name).unlink(missing_ok=True)
            raise
