"""One connection to Redis as the broker uses it: scripts from files, and which errors pass by themselves."""

import asyncio
import hashlib
import re
from collections.abc import Sequence
from importlib import resources
from typing import Any

from redis.asyncio import Redis
from redis.exceptions import (
    AuthenticationError,
    AuthorizationError,
    ClusterDownError,
    MasterDownError,
    NoPermissionError,
    NoScriptError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisClusterException,
    RedisError,
    ResponseError,
    TryAgainError,
)
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from worker.errors import ConfigError, QueueUnavailable
from worker.jobs.redis_connect import close, connect, disconnect, read_url

__all__ = ["RedisClient", "Script"]

_REFUSALS = (AuthenticationError, AuthorizationError, NoPermissionError)
_AWAY = (RedisConnectionError, RedisTimeoutError, RedisClusterException, OSError)
# Redis answers but cannot serve now: it is full, failing over or loading, or its disk is full. Redis 6 tells of such
# an error within a script only in words.
_UNFIT = (ClusterDownError, MasterDownError, OutOfMemoryError, ReadOnlyError, TryAgainError)
_UNFIT_WORDS = re.compile(r"\b(OOM|READONLY|MISCONF|CLUSTERDOWN|TRYAGAIN|MASTERDOWN|NOREPLICAS|BUSY)\b")


class Script:
    """One Lua script, made of files that are packaged next to this module."""

    def __init__(self, *files: str) -> None:
        folder = resources.files("worker.jobs") / "scripts"
        self.text = "\n".join((folder / f"{file}.lua").read_text() for file in files)
        self.digest = hashlib.sha1(self.text.encode(), usedforsecurity=False).hexdigest()


class RedisClient:
    """Commands and scripts on one Redis; whatever passes by itself is raised as `QueueUnavailable`.

    `timeout` is in seconds and must be longer than any command blocks.
    """

    def __init__(self, url: str, *, timeout: float) -> None:
        parsed = read_url(url)
        self.address = parsed.address
        self._redis = connect(parsed, timeout=timeout)

    @property
    def is_one_server(self) -> bool:
        """Whether one command may name keys of several partitions."""
        return isinstance(self._redis, Redis)

    async def call(self, *command: Any) -> Any:
        """Run one command and return its reply as Redis gives it."""
        task = asyncio.current_task()
        asked = task.cancelling() if task else 0
        try:
            reply = await self._redis.execute_command(*command)
        except (RedisError, RedisClusterException, OSError) as error:
            raise await self._named(error) from error
        if task and task.cancelling() > asked:
            # on Python 3.11 a cancellation is lost that comes just when redis-py has sent something
            raise asyncio.CancelledError
        return reply

    async def run(self, script: Script, keys: Sequence[str], args: Sequence[Any]) -> Any:
        """Run a script, sending its text only where Redis does not have it."""
        try:
            return await self.call("EVALSHA", script.digest, len(keys), *keys, *args)
        except NoScriptError:
            return await self.call("EVAL", script.text, len(keys), *keys, *args)

    async def close(self) -> None:
        """Disconnect, also from under a command that blocks."""
        await close(self._redis)

    async def _named(self, error: Exception) -> Exception:
        if isinstance(error, _REFUSALS):
            return ConfigError(f"Redis at {self.address} refuses this worker: {error}")
        if isinstance(error, ReadOnlyError) or "READONLY" in str(error):
            # a failover: only a new connection finds the new master
            await disconnect(self._redis)
        if isinstance(error, (*_AWAY, *_UNFIT)) or _is_unfit(error):
            return QueueUnavailable(f"Redis at {self.address}: {error or type(error).__name__}")
        return error


def _is_unfit(error: Exception) -> bool:
    return isinstance(error, ResponseError) and _UNFIT_WORDS.search(str(error)) is not None
