"""The limits of API keys. A request beyond them is refused with the time to wait; answers carry the remaining
allowance.
"""

import asyncio
import contextlib
import secrets
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any

from stoop.errors import StoopError
from stoop.gateway.keys import ApiKey
from stoop.redis.limiter import Limits, Rate, RedisLimiter, Taken

__all__ = ["BatchLock", "CountedRequest", "RequestLimits", "limits_of"]


@dataclass(frozen=True, slots=True)
class CountedRequest:
    """A request that was counted, or was refused if its caller must `wait` some seconds first."""

    limits: Limits
    name: str
    taken: Taken

    @property
    def wait(self) -> float:
        """The seconds after which the caller may ask again; 0 if the request may go on."""
        return self.taken.wait

    @property
    def headers(self) -> dict[str, str]:
        """The remaining allowance, for the answer."""
        return _headers(self.limits, self.taken)


class RequestLimits:
    """Counts requests in Redis, so that all replicas share the limits. A key without limits costs no call."""

    def __init__(self, limiter: RedisLimiter) -> None:
        self._limiter = limiter
        self._ending: set[asyncio.Task[None]] = set()

    async def count(self, key: ApiKey) -> CountedRequest | None:
        """Count a request of the key; return None if the key has no limits. Raises `QueueUnavailable`."""
        limits = limits_of(key)
        if limits is None:
            return None
        name = secrets.token_hex(8)
        return CountedRequest(limits, name, await self._limiter.take(limits, name))

    def end(self, request: CountedRequest, tokens: int) -> None:
        """Count the tokens of a request that has ended, in a task of its own."""
        if request.limits.concurrent or request.limits.tokens:
            task = asyncio.create_task(_quietly(self._limiter.end(request.limits, request.name, tokens)))
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)

    async def aclose(self) -> None:
        """Finish counting, and disconnect."""
        await asyncio.gather(*self._ending)
        await self._limiter.close()


class BatchLock:
    """The right to run a batch, of one gateway at a time; without renewal it is free again after `seconds`."""

    def __init__(self, url: str, seconds: float = 6.0) -> None:
        self.seconds = seconds
        self._limiter = RedisLimiter(url, forget_seconds=seconds)

    async def take(self, batch_id: str, name: str) -> bool:
        """Take or renew the lock for the gateway of this name; False if another one has it."""
        taken = await self._limiter.take(_only_one(batch_id), name)
        return taken.wait == 0

    async def leave(self, batch_id: str, name: str) -> None:
        """Give the lock back."""
        with contextlib.suppress(StoopError):
            await self._limiter.end(_only_one(batch_id), name, 0)

    async def aclose(self) -> None:
        """Disconnect."""
        await self._limiter.close()


def _only_one(batch_id: str) -> Limits:
    return Limits(owner=f"run/{batch_id}", concurrent=1)


def limits_of(key: ApiKey) -> Limits | None:
    """Return the limits of a key, or None; keys of one tenant share their allowance."""
    if not (key.requests_per_minute or key.tokens_per_minute or key.concurrent):
        return None
    return Limits(
        owner=f"key/{key.id}" if key.tenant is None else f"tenant/{key.tenant}",
        requests=Rate(key.requests_per_minute) if key.requests_per_minute else None,
        tokens=Rate(key.tokens_per_minute) if key.tokens_per_minute else None,
        concurrent=key.concurrent,
    )


def _headers(limits: Limits, taken: Taken) -> dict[str, str]:
    headers = {}
    for kind, rate in limits.rates.items():
        headers[f"x-ratelimit-limit-{kind}"] = str(rate.limit)
        headers[f"x-ratelimit-remaining-{kind}"] = str(taken.remaining[kind])
        headers[f"x-ratelimit-reset-{kind}"] = _duration(taken.full[kind])
    return headers


def _duration(seconds: float) -> str:
    """Write a time as OpenAI does: 12ms, 1s, 6m0s."""
    if seconds < 1:
        return f"{round(1000 * seconds)}ms"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}m{rest}s" if minutes else f"{rest}s"


async def _quietly(ending: Coroutine[Any, Any, None]) -> None:
    # a count that is lost ends by itself, and the caller has its answer
    with contextlib.suppress(StoopError):
        await ending
