"""Rate limits that all replicas of a gateway share: counted in Redis, by its clock.

The keys of a tenant have a hash tag of their own, so that tenants spread over a Cluster.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from stoop.redis.calls import RedisCalls, Script

__all__ = ["Limits", "Rate", "RedisLimiter", "Taken"]

_MICROSECONDS: Final = 1_000_000
_FORGET_SECONDS: Final = 3600.0
"""A request whose gateway died counts as in progress for so long."""


@dataclass(frozen=True, slots=True)
class Rate:
    """At most `limit` units in `seconds`, refilled evenly."""

    limit: int
    seconds: float = 60.0

    @property
    def unit(self) -> float:
        """The microseconds after which one unit is available again."""
        return self.seconds * _MICROSECONDS / self.limit


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of `owner`. None means no limit."""

    owner: str
    requests: Rate | None = None
    tokens: Rate | None = None
    concurrent: int | None = None

    @property
    def rates(self) -> dict[str, Rate]:
        """The rates by their names."""
        named = {"requests": self.requests, "tokens": self.tokens}
        return {name: rate for name, rate in named.items() if rate is not None}


@dataclass(frozen=True, slots=True)
class Taken:
    """The answer for one request: `wait` seconds before the request may be repeated (0: it was taken).

    `remaining` units and seconds until `full`, by the names of the rates.
    """

    wait: float
    remaining: dict[str, int]
    full: dict[str, float]


class RedisLimiter:
    """Takes requests from limits. A request that is never ended counts as in progress for `forget_seconds`.

    Every method raises `QueueUnavailable` when Redis cannot be reached.
    """

    def __init__(self, url: str, *, forget_seconds: float = _FORGET_SECONDS) -> None:
        self._forget = round(forget_seconds * _MICROSECONDS)
        self._calls = RedisCalls(url)
        self._take = Script("stoop.redis", "limit")
        self._end = Script("stoop.redis", "limit_end")

    async def take(self, limits: Limits, name: str) -> Taken:
        """Take one request, which has a name of its own, from all limits or none. Its tokens are counted at its end."""
        rates = limits.rates
        args: list[str | int] = [name, limits.concurrent or 0, self._forget]
        for kind, rate in rates.items():
            args += [repr(rate.unit), repr(rate.unit * rate.limit), int(kind == "requests")]
        keys = [_key(limits, "running"), *(_key(limits, kind) for kind in rates)]
        wait, *found = await self._calls.run(self._take, keys, args)
        return Taken(
            wait=wait / _MICROSECONDS,
            remaining=dict(zip(rates, found[::2], strict=True)),
            full={kind: full / _MICROSECONDS for kind, full in zip(rates, found[1::2], strict=True)},
        )

    async def end(self, limits: Limits, name: str, tokens: int) -> None:
        """End a request that was taken, and count the tokens that it used."""
        rate = limits.tokens
        args: Sequence[str | int] = [name, repr(rate.unit) if rate else 0, tokens if rate else 0]
        await self._calls.run(self._end, [_key(limits, "running"), _key(limits, "tokens")], args)

    async def close(self) -> None:
        """Disconnect; idempotent."""
        await self._calls.close()


def _key(limits: Limits, kind: str) -> str:
    return f"stoop:limit:{{{limits.owner}}}:{kind}"
