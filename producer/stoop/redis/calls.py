"""Runs commands and scripts on the queue's Redis, for producers and operators."""

import asyncio
import contextlib
import hashlib
import time
from collections.abc import Iterator, Sequence
from importlib import resources
from typing import Any

from redis.exceptions import NoScriptError, RedisClusterException, RedisError

from stoop.errors import NotAQueue, QueueUnavailable, StoopError
from stoop.redis.connect import close, connect, make_connection, read_url
from stoop_schemas.redis_replies import Meaning, read_error

__all__ = ["RedisCalls", "Script", "explained", "keeping_cancellation"]

# While a Cluster moves the keys' slot to another node, it refuses scripts on several keys.
_MOVING = "TRYAGAIN"
_MOVING_SECONDS = 10.0
_AGAIN_SECONDS = 0.1

_OTHER_TYPE = "WRONGTYPE"
_PAGE = 5000


class Script:
    """One Lua script, packaged in the folder `scripts` of a package."""

    def __init__(self, package: str, name: str) -> None:
        self.text = (resources.files(package) / "scripts" / f"{name}.lua").read_text()
        self.digest = hashlib.sha1(self.text.encode(), usedforsecurity=False).hexdigest()


class RedisCalls:
    """Calls the Redis that a URL of `stoop_schemas.redis_url` names; connects at first use.

    Any call may be repeated silently, so it must be idempotent. While a Cluster moves the queue to another node, calls
    are repeated for ten seconds. Raises `QueueUnavailable` when Redis cannot be reached after a few tries, refuses the
    client or accepts no writes, and `NotAQueue` when it is the wrong Redis. `address` is the form of the URL that
    messages may show.
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
        until = time.monotonic() + _MOVING_SECONDS
        while True:
            try:
                return await self._try(*command)
            except (RedisError, RedisClusterException) as error:
                if isinstance(error, NoScriptError):
                    raise
                if time.monotonic() >= until or _MOVING not in read_error(error).words:
                    raise explained(error, self.address) from error
            await asyncio.sleep(_AGAIN_SECONDS)

    async def read_each(self, commands: Sequence[Sequence[Any]]) -> list[Any]:
        """Run commands that read one key each in one round trip; return their replies, None for a key of another type.

        It needs only the right to run these commands, not scripts. In a Cluster the keys may be in any slot.
        """
        pipe: Any = self._redis.pipeline(transaction=False)
        for command in commands:
            pipe.execute_command(*command)
        with keeping_cancellation():
            try:
                replies = await pipe.execute(raise_on_error=False)
            except (RedisError, RedisClusterException, OSError) as error:
                raise explained(error, self.address) from error
        return [self._read(reply) for reply in replies]

    async def run(self, script: Script, keys: Sequence[str], args: Sequence[Any]) -> Any:
        """Run a script, sending its text only where Redis does not have it."""
        try:
            return await self.call("EVALSHA", script.digest, len(keys), *keys, *args)
        except NoScriptError:
            return await self.call("EVAL", script.text, len(keys), *keys, *args)

    async def streams(self, pattern: str) -> list[str]:
        """List the streams whose names match, page by page. It scans every key, so only a person's command should call
        it.
        """
        try:
            found = self._redis.scan_iter(match=pattern, count=_PAGE, _type="stream")
            return sorted({key.decode(errors="backslashreplace") async for key in found})
        except (RedisError, RedisClusterException, OSError) as error:
            raise explained(error, self.address) from error

    async def close(self) -> None:
        """Disconnect; idempotent."""
        await close(self._redis)

    def _read(self, reply: Any) -> Any:
        if not isinstance(reply, Exception):
            return reply
        if _OTHER_TYPE in str(reply):
            return None
        raise explained(reply, self.address) from reply

    async def _try(self, *command: Any) -> Any:
        with keeping_cancellation():
            try:
                return await self._redis.execute_command(*command)
            except OSError as error:
                raise explained(error, self.address) from error
            except AttributeError as error:
                if error.obj is not None:
                    raise
                # redis-py wrote to a connection to a Cluster's node that another task had just closed
                raise explained(ConnectionError("the connection was closed"), self.address) from error


@contextlib.contextmanager
def keeping_cancellation() -> Iterator[None]:
    """Raise a cancellation of the block even if redis-py loses it. On Python 3.11 redis-py loses one that arrives just
    after a send, and may raise another error instead.
    """
    task = asyncio.current_task()
    before = task.cancelling() if task else 0
    try:
        yield
    finally:
        if task and task.cancelling() > before:
            raise asyncio.CancelledError


def explained(error: Exception, address: str) -> StoopError:
    """Return the client's own error for one of redis-py, with its meaning and advice."""
    reply = read_error(error)
    kind = NotAQueue if reply.meaning is Meaning.MISMATCH else QueueUnavailable
    return kind(reply.explain(address, error))
