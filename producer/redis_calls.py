"""Commands and scripts on the queue's Redis, for whatever a producer or an operator does there."""

import asyncio
import hashlib
import re
from collections.abc import Sequence
from importlib import resources
from typing import Any

from redis.exceptions import (
    AuthenticationError,
    NoPermissionError,
    NoScriptError,
    RedisClusterException,
    RedisError,
    ResponseError,
)

from producer.errors import NotAQueue, QueueUnavailable
from producer.redis_connect import close, connect, make_connection, read_url

__all__ = ["RedisCalls", "Script"]

# Redis answers, but its memory or disk is full, or it is failing over
_UNFIT = re.compile(r"\b(OOM|READONLY|MISCONF|CLUSTERDOWN|MASTERDOWN|NOREPLICAS)\b|maxmemory|read only replica")

_WRONG = (
    "Redis at {address} holds no queue of this version: {error}. Give the queue a Redis of 6.2 or newer in which"
    " nobody else writes keys that begin with stoop:"
)


class Script:
    """One Lua script, packaged in the folder `scripts` of a package."""

    def __init__(self, package: str, name: str) -> None:
        self.text = (resources.files(package) / "scripts" / f"{name}.lua").read_text()
        self.digest = hashlib.sha1(self.text.encode(), usedforsecurity=False).hexdigest()


class RedisCalls:
    """Calls the Redis that a URL of `schemas.redis_url` names; connects at first use.

    Every call may be repeated unseen, so it must be one that does the same twice. Raises `QueueUnavailable` when Redis
    cannot be reached after a few tries, refuses the client or takes nothing, `NotAQueue` when it is the wrong one;
    `address` is what a message may say of it.
    """

    def __init__(self, url: str) -> None:
        parsed = read_url(url)
        self.address = parsed.address
        self._redis = connect(parsed)

    def make_connection(self) -> Any:
        """Return a new connection of redis-py that is the caller's own."""
        return make_connection(self._redis)

    async def call(self, *command: Any) -> Any:
        """Run one command and return its reply as Redis gives it."""
        task = asyncio.current_task()
        asked = task.cancelling() if task else 0
        try:
            reply = await self._redis.execute_command(*command)
        except NoScriptError:
            raise
        except (AuthenticationError, NoPermissionError) as error:
            raise QueueUnavailable(f"Redis at {self.address} refuses this client: {error}") from error
        except ResponseError as error:
            if not _UNFIT.search(str(error)):
                raise NotAQueue(_WRONG.format(address=self.address, error=error)) from error
            raise QueueUnavailable(f"Redis at {self.address} takes nothing now: {error}") from error
        except (RedisError, RedisClusterException, OSError) as error:
            raise QueueUnavailable(f"Redis at {self.address}: {error or type(error).__name__}") from error
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
        """Disconnect; idempotent."""
        await close(self._redis)
