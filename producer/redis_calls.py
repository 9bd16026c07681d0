"""Commands and scripts on the queue's Redis, for whatever a producer or an operator does there."""

import hashlib
import re
from collections.abc import Sequence
from importlib import resources
from typing import Any
from urllib.parse import urlsplit

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import ExponentialWithJitterBackoff
from redis.exceptions import AuthenticationError, NoPermissionError, NoScriptError, RedisError, ResponseError

from producer.errors import ConfigError, QueueUnavailable

__all__ = ["RedisCalls", "Script"]

_TIMEOUT_SECONDS = 10.0
_CONNECTIONS = 16
# Redis answers, but its memory or disk is full, or it is failing over
_UNFIT = re.compile(r"\b(OOM|READONLY|MISCONF|CLUSTERDOWN|MASTERDOWN|NOREPLICAS)\b|maxmemory|read only replica")


class Script:
    """One Lua script, packaged in the folder `scripts` of a package."""

    def __init__(self, package: str, name: str) -> None:
        self.text = (resources.files(package) / "scripts" / f"{name}.lua").read_text()
        self.digest = hashlib.sha1(self.text.encode(), usedforsecurity=False).hexdigest()


class RedisCalls:
    """Calls one Redis (`redis://`, `rediss://` for TLS, `unix://`); connects at first use.

    Every call may be repeated unseen, so it must be one that does the same twice. Raises `QueueUnavailable` when Redis
    cannot be reached after a few tries, refuses the client or takes nothing; `address` is what a message may say of it.
    """

    def __init__(self, url: str) -> None:
        self.address = _address(url)
        self._redis = _connect(url)

    @property
    def pool(self) -> BlockingConnectionPool:
        """Makes the connections; whoever needs one of its own asks it."""
        pool: BlockingConnectionPool = self._redis.connection_pool  # type: ignore[assignment]
        return pool

    async def call(self, *command: Any) -> Any:
        """Run one command and return its reply as Redis gives it."""
        try:
            return await self._redis.execute_command(*command)  # type: ignore[no-untyped-call]
        except (AuthenticationError, NoPermissionError) as error:
            raise QueueUnavailable(f"Redis at {self.address} refuses this client: {error}") from error
        except ResponseError as error:
            if not _UNFIT.search(str(error)):
                raise
            raise QueueUnavailable(f"Redis at {self.address} takes nothing now: {error}") from error
        except (RedisError, OSError) as error:
            raise QueueUnavailable(f"Redis at {self.address}: {error or type(error).__name__}") from error

    async def run(self, script: Script, keys: Sequence[str], args: Sequence[Any]) -> Any:
        """Run a script, sending its text only where Redis does not have it."""
        try:
            return await self.call("EVALSHA", script.digest, len(keys), *keys, *args)
        except NoScriptError:
            return await self.call("EVAL", script.text, len(keys), *keys, *args)

    async def close(self) -> None:
        """Disconnect; idempotent."""
        await self._redis.aclose()


def _connect(url: str) -> "Redis":
    try:
        # thousands of tasks may wait on one client: they share a few connections, in turn
        pool = BlockingConnectionPool.from_url(
            url,
            max_connections=_CONNECTIONS,
            timeout=None,
            protocol=2,
            socket_timeout=_TIMEOUT_SECONDS,
            socket_connect_timeout=5.0,
            retry=Retry(ExponentialWithJitterBackoff(base=0.05, cap=1.0), 4),
        )
    except ValueError:
        # the reason may quote a piece of the URL, and so of a password
        raise ConfigError("the Redis URL cannot be read: write redis://[user:password@]host[:port][/db]") from None
    return Redis.from_pool(pool)


def _address(url: str) -> str:
    """Return what a message may say of a URL: no user, no password, no options."""
    try:
        parts = urlsplit(url)
        return parts.path if parts.scheme == "unix" else f"{parts.hostname}:{parts.port or 6379}"
    except ValueError:
        return "?"
