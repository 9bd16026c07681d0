"""Where the Celery dialect begins: what is behind it is imported with the first Celery job, not before."""

import asyncio
import contextlib
import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final, Literal

import structlog

from schemas import celery as dialect
from schemas import names
from schemas.failure import FailureCode, Rejected
from schemas.job import ID_LIMIT, NAME_PATTERN, Job
from schemas.result import Result
from schemas.signature import SigningKeys
from worker.errors import ConfigError, QueueUnavailable
from worker.jobs.broker import Delivery
from worker.jobs.redis_client import RedisClient, Script

if TYPE_CHECKING:
    from worker.celery.finisher import Finisher

__all__ = ["CeleryDialect", "CelerySettings"]

log = structlog.get_logger(__name__)

_ID: Final = re.compile(NAME_PATTERN)
_TIMEOUT_SECONDS: Final = 10.0
_LAST_SECONDS: Final = 3.0
_FLAG_TTL: Final = 30 * 86_400_000
"""Milliseconds for which a task that the queue does not know yet stays revoked.

A task in a lane is not known before it is claimed, and must not run because a lane was long paused or far behind. Some
end is needed all the same: tasks of other workers are flagged as well, and nobody takes those flags away.
"""


@dataclass(frozen=True, slots=True)
class CelerySettings:
    """How this worker deals with Celery: `auto` has it wait for the first message, `on` answer remote control at once.

    `broker` and `backend` are Celery's own URLs, the queue's by default. `routes` say to which queue goes what follows
    our tasks, by a pattern of task names. `ttl` is in seconds. `environment` is the clerk's, beside the worker's.
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
        """The broker's and the backend's; None where they do not name one server each."""
        broker, backend = self.broker or self.redis_url, self.backend or self.redis_url
        one_each = all(url.startswith(("redis://", "rediss://", "unix://")) for url in (broker, backend))
        return (broker, backend) if one_each else None

    @property
    def refusal(self) -> str:
        """Why no Celery message is read here; nothing if they are."""
        if self.mode == "off":
            return "this worker takes no Celery messages: see STOOP_CELERY"
        if find_spec("celery") is None:
            return "this worker lacks Celery: install the extra `celery`"
        if self.urls is None:
            return "Celery needs one Redis server: set STOOP_CELERY_BROKER and STOOP_CELERY_BACKEND to its address"
        return ""


class CeleryDialect:
    """Reads Celery messages as jobs, and tells Celery of their ends.

    `in_flight` gives the deliveries that run now. Every `period` seconds it is looked whether a dead worker has left
    anything to tell.
    """

    def __init__(
        self,
        settings: CelerySettings,
        worker: str,
        *,
        keys: SigningKeys | None,
        in_flight: Callable[[], Iterable[Delivery]],
        period: float,
    ) -> None:
        self._settings = settings
        self._worker = worker
        self._keys = keys
        self._refusal = settings.refusal
        self._in_flight = in_flight
        self._period = period
        self._redis = RedisClient(settings.redis_url, timeout=_TIMEOUT_SECONDS)
        self._revoke = Script("revoke")
        self._wanted = asyncio.Event()
        self._finisher: Finisher | None = None
        self._ended: dict[str, int] = {}  # by task

    def read(self, packed: bytes) -> Job:
        """Return the job that a message asks for; raises `Rejected`."""
        from worker.celery.message import read_job, read_message

        if self._refusal:
            raise Rejected(FailureCode.MALFORMED, self._refusal)
        job = read_job(read_message(packed, self._keys))
        self._wanted.set()
        return job

    def note(self, packed: bytes, result: Result) -> bytes:
        """Return what Celery is to be told; nothing for what is no message, nor of another job, or is not signed."""
        if self._refusal:
            return b""
        from worker.celery.message import read_message
        from worker.celery.note import pack_note, write_note

        try:
            message = read_message(packed, self._keys)
        except Rejected:
            return b""
        if message.headers.id != result.id:
            return b""
        note = write_note(message, result)
        known = note is not None and note.code != FailureCode.UNSUPPORTED_SKILL
        if note and known:
            self._ended[note.task] = self._ended.get(note.task, 0) + 1
        return pack_note(note) if note else b""

    def told(self) -> None:
        """Hear that a note has been kept, and is to be passed on."""
        self._wanted.set()
        if self._finisher:
            self._finisher.wake()

    async def finish(self) -> None:
        """Give what has ended a moment to be told; what is left then is another worker's to tell."""
        if self._finisher:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LAST_SECONDS):
                    await self._finisher.told_all()

    async def run(self) -> None:
        """Wait for something to do with Celery, then do it, until cancelled."""
        try:
            if self._refusal:
                await asyncio.Event().wait()
            await self._until_wanted()
            await self._serve()
        finally:
            await self._redis.close()

    async def _until_wanted(self) -> None:
        while self._settings.mode != "on" and not self._wanted.is_set() and not await self._any_notes():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._period):
                    await self._wanted.wait()

    async def _any_notes(self) -> bool:
        try:
            return bool(await self._redis.call("XLEN", names.celery_notes()))
        except (QueueUnavailable, ConfigError):
            return False  # nothing of Celery's has come here yet: what stands in the way is told when it does

    async def _serve(self) -> None:
        from worker.celery.clerk import Clerk, Desk
        from worker.celery.finisher import Finisher, ResultStore
        from worker.celery.notes import Notes

        settings, urls = self._settings, self._settings.urls
        assert urls is not None, "without them messages are refused"
        desk = Desk(*urls, f"stoop@{self._worker}", settings.ttl, dict(settings.routes))
        clerk = Clerk(desk, revoke=self._cancel, look=self._look, environment=settings.environment)
        store = ResultStore(urls[1], ttl=settings.ttl)
        self._finisher = Finisher(Notes(self._redis, self._worker), store, clerk, period=self._period)
        await clerk.start()  # remote control is answered from now on
        await self._finisher.run()

    async def _cancel(self, ids: list[str]) -> None:
        for task_id in ids:
            # a task of other workers is none of ours, but nobody here knows which are
            if len(task_id) > ID_LIMIT or not _ID.fullmatch(task_id) or names.partition(task_id) != 0:
                continue
            message = json.dumps({"verb": "cancel", "id": task_id})
            keys = [names.job(task_id), names.delayed(), names.bell(), names.cancelled()]
            try:
                await self._redis.run(self._revoke, keys, [task_id, names.CONTROL, message, _FLAG_TTL])
            except (QueueUnavailable, ConfigError) as error:
                log.warning("a task could not be revoked", error=str(error))

    def _look(self, what: str) -> Any:
        if what == "stats":
            return {
                "total": dict(self._ended),
                "pool": {"implementation": "stoop", "max-concurrency": self._settings.permits},
            }
        return [active for one in self._in_flight() if one.celery and (active := self._active(one))]

    def _active(self, delivery: Delivery) -> dict[str, Any] | None:
        """Return what `inspect active` shows of a task; None for what is no message, and is about to be refused."""
        from worker.celery.message import read_message

        try:
            task = read_message(delivery.packed, None).headers.task
        except Rejected:
            return None
        # no arguments: remote control is no place for what users ask
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
