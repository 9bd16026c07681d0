"""The Celery dialect as the worker uses it. The rest of this folder is imported with the first Celery job."""

import asyncio
import contextlib
import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final, Literal

import structlog

from stoop_schemas import celery as dialect
from stoop_schemas import names
from stoop_schemas.failure import FailureCode, Rejected
from stoop_schemas.job import ID_LIMIT, NAME_PATTERN, Job
from stoop_schemas.result import Result
from stoop_schemas.signature import SigningKeys
from stoop_worker.errors import ConfigError, QueueFault, QueueUnavailable
from stoop_worker.jobs.broker import Delivery
from stoop_worker.jobs.outage import RedisOutage
from stoop_worker.jobs.redis.client import RedisClient, Script

if TYPE_CHECKING:
    from stoop_worker.celery.outbox_relay import OutboxRelay

__all__ = ["CeleryDialect", "CelerySettings"]

log = structlog.get_logger(__name__)

_ID: Final = re.compile(NAME_PATTERN)
_TIMEOUT_SECONDS: Final = 10.0
_LAST_SECONDS: Final = 3.0
_FLAG_TTL: Final = 30 * 86_400_000
"""The milliseconds for which a revoked task stays revoked if the queue does not know it yet.

The queue knows a task in a lane only once a worker has claimed it, so the flag must outlast a long pause or a deep
backlog. It must expire all the same, because tasks of other workers are flagged too, and those flags are never cleared.
"""


@dataclass(frozen=True, slots=True)
class CelerySettings:
    """A worker's Celery settings.

    With `mode` "auto" the sidecar starts at the first Celery message; with "on" it starts at once, so that the worker
    answers remote control from the beginning. `broker` and `backend` are Celery's own URLs; both default to the
    queue's. `routes` maps patterns of task names to the queues of follow-up tasks. `ttl` is in seconds. `environment`
    is added to the worker's own for the sidecar.
    """

    mode: Literal["auto", "on", "off"]
    redis_url: str = field(repr=False)
    broker: str | None = field(default=None, repr=False)
    backend: str | None = field(default=None, repr=False)
    routes: Mapping[str, str] = field(default_factory=dict)
    ttl: int = 86_400
    permits: int = 1
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def urls(self) -> tuple[str, str] | None:
        """The URLs of broker and backend; None if either does not name exactly one server."""
        broker, backend = self.broker or self.redis_url, self.backend or self.redis_url
        one_each = all(url.startswith(("redis://", "rediss://", "unix://")) for url in (broker, backend))
        return (broker, backend) if one_each else None

    @property
    def refusal(self) -> str:
        """The reason why this worker refuses Celery messages; empty if it accepts them."""
        if self.mode == "off":
            return "this worker accepts no Celery messages: see STOOP_CELERY"
        if find_spec("celery") is None:
            return "this worker lacks Celery: install the extra `celery`"
        if self.urls is None:
            return "Celery needs one Redis server: set STOOP_CELERY_BROKER and STOOP_CELERY_BACKEND to its address"
        return ""


class CeleryDialect:
    """Reads Celery messages as jobs, and reports their endings to Celery.

    `in_flight` returns the deliveries that run now. Every `period` seconds it looks for endings that a dead worker
    left in the outbox.
    """

    def __init__(
        self,
        settings: CelerySettings,
        worker: str,
        *,
        keys: SigningKeys | None,
        in_flight: Callable[[], Iterable[Delivery]],
        period: float,
        outage: RedisOutage | None = None,
    ) -> None:
        self._outage = outage or RedisOutage()
        self._settings = settings
        self._worker = worker
        self._keys = keys
        self._refusal = settings.refusal
        self._in_flight = in_flight
        self._period = period
        self._redis = RedisClient(settings.redis_url, timeout=_TIMEOUT_SECONDS)
        self._revoke = Script("revoke")
        self._wanted = asyncio.Event()
        self._relay: OutboxRelay | None = None
        self._ended: dict[str, int] = {}  # by task

    def read(self, packed: bytes) -> Job:
        """Return the job that a message asks for; raises `Rejected`."""
        from stoop_worker.celery.message import read_job, read_message

        if self._refusal:
            raise Rejected(FailureCode.MALFORMED, self._refusal)
        job = read_job(read_message(packed, self._keys))
        self._wanted.set()
        return job

    def ending(self, packed: bytes, result: Result) -> bytes:
        """Return the ending to store for Celery, packed.

        It is empty if no one waits for it, and if `packed` is not a signed message of the job that `result` belongs to.
        """
        if self._refusal:
            return b""
        from stoop_worker.celery.ending import ending_of, pack_ending
        from stoop_worker.celery.message import read_message

        try:
            message = read_message(packed, self._keys)
        except Rejected:
            return b""
        if message.headers.id != result.id:
            return b""
        ending = ending_of(message, result)
        if ending is None:
            return b""
        if ending.code != FailureCode.UNSUPPORTED_SKILL:
            self._ended[ending.task] = self._ended.get(ending.task, 0) + 1
        return pack_ending(ending)

    def relay(self) -> None:
        """Start delivering an ending that has just been stored."""
        self._wanted.set()
        if self._relay:
            self._relay.wake()

    async def finish(self) -> None:
        """Wait a moment for the stored endings to be delivered; another worker delivers the rest."""
        if self._relay:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LAST_SECONDS):
                    await self._relay.wait_until_empty()

    async def run(self) -> None:
        """Wait until Celery is needed, then serve it until cancelled."""
        try:
            if self._refusal:
                await asyncio.Event().wait()
            await self._until_wanted()
            await self._serve()
        finally:
            await self._redis.close()

    async def _until_wanted(self) -> None:
        while self._settings.mode != "on" and not self._wanted.is_set() and not await self._any_endings():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._period):
                    await self._wanted.wait()

    async def _any_endings(self) -> bool:
        try:
            return bool(await self._redis.call("XLEN", names.celery_outbox()))
        except (QueueUnavailable, ConfigError):
            return False  # no Celery message has come yet; the first one that comes reports this error

    async def _serve(self) -> None:
        from stoop_worker.celery.outbox import Outbox
        from stoop_worker.celery.outbox_relay import OutboxRelay, ResultStore
        from stoop_worker.celery.sidecar import Sidecar, SidecarSettings

        settings, urls = self._settings, self._settings.urls
        assert urls is not None, "messages are refused without them"
        sidecar = Sidecar(
            SidecarSettings(*urls, f"stoop@{self._worker}", settings.ttl, dict(settings.routes)),
            revoke=self._cancel,
            inspect=self._inspect,
            environment=settings.environment,
        )
        # an outage of Celery's own result backend does not make this worker unready
        outage = self._outage if urls[1] == settings.redis_url else RedisOutage()
        store = ResultStore(urls[1], ttl=settings.ttl, outage=outage)
        outbox = Outbox(self._redis, self._worker)
        self._relay = OutboxRelay(outbox, store, sidecar, period=self._period, outage=self._outage)
        await sidecar.start()  # the worker answers remote control from now on
        await self._relay.run()

    async def _cancel(self, ids: list[str]) -> None:
        for task_id in ids:
            # Celery sends every worker the tasks of all: skip the ids that no job of ours can have
            if len(task_id) > ID_LIMIT or not _ID.fullmatch(task_id) or names.partition(task_id) != 0:
                continue
            message = json.dumps({"verb": "cancel", "id": task_id})
            keys = [names.job(task_id), names.delayed(), names.bell(), names.cancelled()]
            try:
                await self._redis.run(self._revoke, keys, [task_id, names.CONTROL, message, _FLAG_TTL])
            except (QueueUnavailable, QueueFault, ConfigError) as error:
                log.warning("a task could not be revoked", error=str(error))

    def _inspect(self, question: str) -> Any:
        if question == "stats":
            return {
                "total": dict(self._ended),
                "pool": {"implementation": "stoop", "max-concurrency": self._settings.permits},
            }
        return [active for one in self._in_flight() if one.celery and (active := self._active(one))]

    def _active(self, delivery: Delivery) -> dict[str, Any] | None:
        """Return the entry of `inspect active` for a task; None if the message is malformed and about to be refused."""
        from stoop_worker.celery.message import read_message

        try:
            task = read_message(delivery.packed, None).headers.task
        except Rejected:
            return None
        # no arguments: remote control must not show users' content
        return {
            "id": delivery.job_id,
            "name": task,
            "args": [],
            "kwargs": {},
            "hostname": f"stoop@{self._worker}",
            "time_start": delivery.claimed_at / 1000,
            "acknowledged": False,
            "delivery_info": {"routing_key": dialect.queue(delivery.lane), "redelivered": delivery.attempt > 1},
        }
