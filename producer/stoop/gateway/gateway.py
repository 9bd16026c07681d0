"""The state that all calls of one gateway share. It knows no call and no route: those import it."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from typing import Any, Final

from stoop.client.async_client import AsyncClient
from stoop.config import ProducerConfig
from stoop.errors import ConfigError, StoopError
from stoop.gateway.dead_causes import CauseWatch
from stoop.gateway.errors import ApiError, shutting_down
from stoop.gateway.files import ObjectFolder
from stoop.gateway.follower import Follower
from stoop.gateway.keys import OPEN, ApiKey, KeyRing, Scope
from stoop.gateway.limits import RequestLimits
from stoop.gateway.metrics import HttpMetrics
from stoop.gateway.models import Models
from stoop.gateway.options import ServeOptions
from stoop.gateway.queue_watch import QueueWatch
from stoop.gateway.traces import RequestSpans
from stoop.gateway.wait import Wait
from stoop.operator.port import Operator
from stoop.operator.redis_operator import RedisOperator
from stoop.redis.limiter import RedisLimiter
from stoop.redis.open_batches import OpenBatches

__all__ = ["Gateway"]

_LAST_SECONDS: Final = 2.0
"""The end of the grace period, in which streams report that they are cut off."""


class Gateway:
    """Holds no state of a job: any replica can continue any job."""

    def __init__(self, config: ProducerConfig, options: ServeOptions) -> None:
        if options.keys is None and not options.open:
            raise ConfigError(
                "give --keys FILE (STOOP_API_KEYS_FILE), which `stoop keys new` makes, or --open to ask for no key"
            )
        if options.keys is not None and options.open:
            raise ConfigError("--keys and --open exclude each other: leave one out")
        self.options = options
        self.client = AsyncClient(config)
        url = config.redis_url.get_secret_value()
        self.limits = RequestLimits(RedisLimiter(url))
        self.store = ObjectFolder(config)
        self.open_batches = OpenBatches(url)
        self.new_batch = asyncio.Event()
        self.models = Models(self.client, options.alias_table)
        self.operator: Operator = RedisOperator(url)
        self.watch = QueueWatch(self.operator, config.lanes)
        self.causes = CauseWatch(self.operator)
        self.metrics = HttpMetrics()
        self.spans = RequestSpans()
        self.drains = asyncio.Event()
        self.closing: asyncio.Future[None]
        self.waits: set[Wait] = set()
        self._keys = None if options.keys is None else KeyRing(options.keys)
        self._followers: set[Follower] = set()
        self._cleaning: set[asyncio.Task[None]] = set()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncGenerator[None, None]:
        """Serve inside the `with`, on its event loop."""
        self.closing = asyncio.get_running_loop().create_future()
        try:
            yield
        finally:
            self.close()
            await asyncio.gather(*self._cleaning, return_exceptions=True)
            await self.limits.aclose()
            await self.open_batches.close()
            self.watch.close()
            await self.operator.close()
            await self.client.aclose()

    @property
    def draining(self) -> bool:
        """Return whether load balancers should send no more requests."""
        return self.drains.is_set()

    def drain(self) -> None:
        """Make load balancers send no more requests; shortly before the end of the grace, end the remaining ones."""
        if self.draining:
            return
        self.drains.set()
        grace = max(0.0, self.options.drain_seconds - _LAST_SECONDS)
        asyncio.get_running_loop().call_later(grace, self.close)

    def close(self) -> None:
        """End every answer with an error; idempotent."""
        if not self.closing.done():
            self.closing.set_result(None)
        for wait in self.waits:
            wait.end(shutting_down())
        for follower in self._followers:
            follower.break_off(shutting_down())

    def admit(self, secret: str | None, scope: Scope) -> ApiKey:
        """Return the caller's key; raise an `ApiError` (401 or 403) if it is missing, unknown or lacks the right."""
        key = OPEN if self._keys is None else self._keys.find(secret) if secret else None
        if key is None:
            problem = (
                "this API key is unknown, revoked or expired" if secret else "give an API key: Authorization: Bearer"
            )
            raise ApiError(401, "invalid_api_key", problem)
        if not key.opens(scope):
            raise ApiError(403, "missing_scope", f"this API key lacks the scope {scope}")
        return key

    def follow(self, job_id: str, **how: Any) -> Follower:
        """Follow a job until `leave` or `close`; `how` are further arguments of `Follower`."""
        follower = Follower(self.client, job_id, **how)
        self._followers.add(follower)
        return follower

    def leave(self, follower: Follower) -> None:
        """Stop following a job."""
        self._followers.discard(follower)
        self._clean(follower.close())

    def cancel(self, job_id: str) -> None:
        """Cancel a job whose caller has left, in a task of its own, since the caller's is cancelled."""
        self._clean(asyncio.create_task(self._cancel(job_id)))

    async def _cancel(self, job_id: str) -> None:
        with contextlib.suppress(StoopError):
            await self.client.cancel(job_id)

    def _clean(self, task: "asyncio.Task[None]") -> None:
        self._cleaning.add(task)
        task.add_done_callback(self._cleaning.discard)
