"""The broker's connection to Redis: runs scripts from files, and separates passing errors from lasting ones."""

import asyncio
import hashlib
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any, Final

from redis.asyncio import Redis
from redis.exceptions import NoScriptError, RedisClusterException, RedisError

from stoop_schemas.redis_replies import REPLIES, Meaning, read_error
from stoop_worker.errors import ConfigError, QueueFault, QueueUnavailable, WorkerError
from stoop_worker.jobs.redis.connect import close, connect, disconnect, read_url
from stoop_worker.jobs.redis.connections import Connections

__all__ = ["BROKER_SCRIPTS", "RedisClient", "Script"]

BROKER_SCRIPTS: Final[Mapping[str, tuple[str, ...]]] = {
    "take": ("prelude", "entries", "tenants", "quarantine", "take"),
    "append": ("prelude", "though_full", "ownership", "events", "append"),
    "settle": ("prelude", "though_full", "ownership", "events", "settle"),
    "extend": ("prelude", "though_full", "ownership", "extend"),
    "reclaim": ("prelude", "entries", "reclaim"),
    "leave": ("prelude", "though_full", "leave"),
}
"""The files that make up each script of the broker."""


class Script:
    """One Lua script, assembled from files packaged next to this module."""

    def __init__(self, *files: str) -> None:
        folder = resources.files("stoop_worker.jobs.redis") / "scripts"
        self.text = "\n".join((folder / f"{file}.lua").read_text() for file in files)
        self.digest = hashlib.sha1(self.text.encode(), usedforsecurity=False).hexdigest()


class RedisClient:
    """Runs commands and scripts on one Redis; raises passing errors as `QueueUnavailable`.

    It raises a refusal as `ConfigError`, and any other error of the server as `QueueFault`.

    `timeout` is in seconds and must be longer than any command blocks.
    """

    def __init__(self, url: str, *, timeout: float) -> None:
        parsed = read_url(url)
        self.address = parsed.address
        self._redis = connect(parsed, timeout=timeout)
        # a Cluster's client chooses the node for each command
        self._connections = Connections(self._redis, timeout=timeout) if isinstance(self._redis, Redis) else None
        self._execute = self._connections.execute if self._connections else self._redis.execute_command

    @property
    def is_one_server(self) -> bool:
        """True if one command may name keys of several partitions."""
        return self._connections is not None

    async def call(self, *command: Any) -> Any:
        """Run one command and return Redis's reply unchanged."""
        task = asyncio.current_task()
        asked = task.cancelling() if task else 0
        try:
            reply = await self._execute(*command)
        except NoScriptError:
            raise
        except (RedisError, RedisClusterException, OSError) as error:
            raise await self._named(error) from error
        except AttributeError as error:
            if error.obj is not None:
                raise
            # redis-py wrote to a connection to a Cluster's node that another task had just closed
            raise await self._named(ConnectionError("the connection was closed")) from error
        if task and task.cancelling() > asked:
            # Python 3.11 loses a cancellation that arrives just after redis-py has sent something
            raise asyncio.CancelledError
        return reply

    async def run(self, script: Script, keys: Sequence[str], args: Sequence[Any]) -> Any:
        """Run a script; its text is sent only if Redis does not have it."""
        try:
            return await self.call("EVALSHA", script.digest, len(keys), *keys, *args)
        except NoScriptError:
            return await self.call("EVAL", script.text, len(keys), *keys, *args)

    async def close(self) -> None:
        """Disconnect, even while a command blocks."""
        if self._connections is not None:
            await self._connections.disconnect()
        await close(self._redis)

    async def _named(self, error: Exception) -> WorkerError:
        if "DB index is out of range" in str(error):
            return ConfigError(
                f"Redis at {self.address} has no such database: end STOOP_REDIS_URL (--redis-url) with a number that "
                "it has, from 0 to 15 if its setting `databases` was not changed"
            )
        reply = read_error(error)
        if "READONLY" in reply.words:
            # after a failover only a new connection finds the new master
            await (self._connections.disconnect() if self._connections else disconnect(self._redis))
        if reply.meaning in (Meaning.AWAY, Meaning.OUTAGE):
            return QueueUnavailable(reply.explain(self.address, error))
        if reply in REPLIES:
            return ConfigError(reply.explain(self.address, error))
        return QueueFault(f"Redis at {self.address} answers what this worker cannot work with: {error}")
