"""Jobs as they are: submit them, follow them, wait for them, end them. Knows nothing of images."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable, Sequence

from stoop.client import events
from stoop.client.build_job import checked, within
from stoop.client.gathering import Gathering, Outcome
from stoop.client.models import LiveModel, known_models, live_models
from stoop.client.outage import OUTAGE_SECONDS, Retrying
from stoop.client.sending import sending
from stoop.client.states import read_state, timed_out
from stoop.client.stored_output import ReadObject, event_with_output, with_output
from stoop.client.submission import submit_each
from stoop.client.transport import Transport
from stoop.client.unserved import UnservedLanes
from stoop.errors import ClientUnusable, InvalidJob, QueueUnavailable, StoopError
from stoop_schemas.allowed import AllowedBuckets
from stoop_schemas.event import Event, TerminalEvent
from stoop_schemas.failure import Rejected
from stoop_schemas.job import Job
from stoop_schemas.result import Result
from stoop_schemas.state import State

__all__ = ["JobClient"]

_LISTEN_SECONDS = 1.0


class JobClient:
    """Submits jobs through a transport, and reads their events and results.

    A wait without its own timeout lasts `timeout_seconds`. With `cancel_on_exit` a job of this client is cancelled
    when the reader of its stream or result leaves before the end; closing the client cancels the rest. `read_object`
    reads the outputs that workers have put into the object store.
    """

    def __init__(
        self,
        transport: Transport,
        *,
        allowed: AllowedBuckets,
        timeout_seconds: float,
        cancel_on_exit: bool = False,
        read_object: ReadObject | None = None,
    ) -> None:
        self._transport = transport
        self._read_object = read_object
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = False
        self._allowed = allowed
        self._timeout_seconds = timeout_seconds
        self._cancel_on_exit = cancel_on_exit
        self._unserved = UnservedLanes(transport)
        # only the jobs to cancel when the client closes: others would stay for ever if their answers are never read
        self._open: set[str] = set()

    async def submit(self, job: Job) -> str:
        """Put the job into its lane and return its id (that of the first job, if its idempotency key was seen).

        Raises `InvalidJob`, `IdempotencyConflict`, `QueueFull` (with `retry_after`) or `QueueUnavailable`. It is safe
        to submit the same job again after an error: it is put into the lane once. If no live worker serves the lane, a
        warning is logged once a lane, and the job waits there.
        """
        return (await self.submit_many([job]))[0]

    async def submit_many(self, jobs: Sequence[Job]) -> list[str]:
        """Put the jobs into their lanes, 128 to a call; return their ids, or raise like `submit` at the first refusal.

        Each call takes all of its jobs or none, but earlier calls stand: `submit_each` reports them one by one.
        """
        return await self._put(jobs)

    async def submit_each(self, jobs: Sequence[Job]) -> list[str | StoopError]:
        """Put every job that can be put; return for each its id or its refusal, in their order.

        A refusal is an `InvalidJob`, `IdempotencyConflict` or `QueueFull`. Raises `QueueUnavailable`.
        """
        return await submit_each(self._put, jobs)

    async def gather(
        self, jobs: Iterable[Job] | AsyncIterable[Job], *, window: int = 256, timeout: float | None = None
    ) -> AsyncGenerator[tuple[Job, Outcome], None]:
        """Submit the jobs as room allows, and yield each with its outcome as soon as there is one.

        An outcome is the `Result` of a job that completed, or the `StoopError` of one that did not: its refusal, or the
        error of `result`. At most `window` jobs are pulled from `jobs` and not yet yielded. If a lane is full, the jobs
        that fit are submitted, and the others once the queue expects room. Raises the errors of `jobs`, and
        `QueueUnavailable` when Redis stays away for a minute. If the caller stops early, the jobs in flight keep
        running.
        """
        retrying = Retrying(OUTAGE_SECONDS)
        gathering = Gathering(self._put, lambda job_id: self.result(job_id, timeout), window=window, retrying=retrying)
        async with contextlib.aclosing(gathering.outcomes(jobs)) as outcomes:
            async for job, outcome in outcomes:
                yield job, outcome

    async def stream(
        self, job_id: str, timeout: float | None = None, *, after: int = -1, cancel_on_exit: bool | None = None
    ) -> AsyncGenerator[Event, None]:
        """Yield every event of the job, each once and in order, up to the terminal one.

        If the job streams, a late subscriber gets the earlier events too, and a lost connection or a restart of Redis
        loses nothing. For any other job the subscriber gets the terminal event, and the events that are published while
        it listens. With `after` the stream begins after the event with that `seq`, which a browser sends as
        Last-Event-ID; below 0 it begins at the first event. After a `RestartedEvent`, discard everything before it.

        Raises `TimedOut` after `timeout` seconds for the whole stream; the job keeps running, unless `cancel_on_exit`.
        Raises `NotFound` for an unknown job, checked at the start and after every 30 s without an event. An id that no
        client made has 30 s, because the queue knows a job of a bare XADD or of Celery only once a worker has claimed
        it.
        """
        deadline = None if timeout is None else asyncio.get_running_loop().time() + timeout
        cancels = self._cancels(cancel_on_exit)
        async with (
            self._left_or_ended(job_id, cancel_on_exit) as ended,
            contextlib.aclosing(events.follow(self._queue, job_id, after)) as followed,
        ):
            while True:
                try:
                    async with asyncio.timeout_at(deadline):
                        event = await anext(followed, None)
                        if event is None or isinstance(event, TerminalEvent):
                            ended()
                            cancels = False
                        event = await event_with_output(event, self._read_object)
                except TimeoutError:
                    raise await timed_out(self.state(job_id), job_id, timeout or 0.0, cancelled=cancels) from None
                if event is None:
                    return
                yield event

    async def last_seq(self, job_id: str) -> int | None:
        """Return the `seq` of the job's last event up to now; None if the queue does not know the job (any more)."""
        count = await self._queue.next_seq(job_id)
        return None if count is None else count - 1

    async def result(self, job_id: str, timeout: float | None = None, *, cancel_on_exit: bool | None = None) -> Result:
        """Wait for the job to complete; raise `JobFailed`, `JobCancelled`, `JobExpired` or `TimedOut` if it does not.

        `timeout` is in seconds; without one it is the config's `timeout_seconds`. A job that timed out keeps running,
        unless `cancel_on_exit`. Raises `NotFound` at once for an id that a client made and the queue does not know.
        """
        async with self._left_or_ended(job_id, cancel_on_exit) as ended:
            waiting = events.wait(self._queue, job_id)
            return await self._in_time(job_id, waiting, timeout, ended, cancels=self._cancels(cancel_on_exit))

    async def submit_and_wait(
        self,
        job: Job,
        timeout: float | None = None,
        *,
        cancel_on_exit: bool | None = None,
        on_submitted: Callable[[str], object] = lambda job_id: None,
    ) -> Result:
        """Do what `submit` and `result` do, in fewer calls: it listens before it submits, so it misses nothing.

        `on_submitted` gets the job's id. Raises the errors of both.
        """
        async with contextlib.AsyncExitStack() as stack:
            ended = await stack.enter_async_context(self._left_or_ended(job.id, cancel_on_exit))
            published = await self._listening(stack, job.id)
            try:
                job_id = await self.submit(job)
            except StoopError:
                ended()
                raise
            on_submitted(job_id)
            if published is not None and job_id == job.id:
                waiting = events.listen(self._queue, job_id, published)
                return await self._in_time(job_id, waiting, timeout, ended, cancels=self._cancels(cancel_on_exit))
            ended()
        return await self.result(job_id, timeout, cancel_on_exit=cancel_on_exit)

    async def stored_result(self, job_id: str) -> Result | None:
        """Return the result that the queue holds now, whatever its status; None if there is none (yet, or any more)."""
        result = await events.stored(self._queue, job_id)
        return None if result is None else await with_output(result, self._read_object)

    async def state(self, job_id: str) -> State | None:
        """Return the job's state; None if the queue does not know it (yet, or any more)."""
        return read_state(await self._queue.state(job_id))

    async def cancel(self, job_id: str) -> State | None:
        """Request the cancellation of a job; return the state it was in, or None if the queue does not know it (yet).

        A waiting job never runs; a running one stops within a step. Its last event, `cancelled`, marks the moment. A
        job that has ended stays as it is, and so does one that completes first.
        """
        return read_state(await self._queue.cancel(job_id))

    async def forget(self, job_ids: Sequence[str]) -> None:
        """Remove the answers of jobs that have ended from Redis, before they expire. Other jobs stay as they are.

        Afterwards the queue does not know these jobs. It frees memory early, where answers are large and read once.
        """
        await self._queue.forget(job_ids)

    async def models(self, *, lapsed: bool = False) -> list[LiveModel]:
        """List the models that have a worker now, the default first: their skills, sizes and number of workers.

        With `lapsed`, also list models whose workers let their leases run out; their number of workers is 0.
        Raises `QueueUnavailable`, also where Redis does not let this user read the registry of workers.
        """
        return known_models(await self._queue.registered()) if lapsed else live_models(await self._queue.workers())

    async def aclose(self) -> None:
        """Disconnect; idempotent. Cancel the jobs that `cancel_on_exit` covers and whose end has not been seen."""
        if self._closed:
            return
        left, self._open = self._open, set()
        await asyncio.gather(*(self._cancel_left(job_id) for job_id in left))
        self._closed = True
        if self._loop in (None, asyncio.get_running_loop()):
            await self._transport.close()

    @property
    def _queue(self) -> Transport:
        """The transport, which belongs to the event loop that first used it; raises `ClientUnusable` elsewhere."""
        if self._closed:
            raise ClientUnusable("this client is closed")
        loop = asyncio.get_running_loop()
        if self._loop is None:
            self._loop = loop
        if self._loop is not loop:
            raise ClientUnusable("this client belongs to another event loop: make one in each asyncio.run()")
        return self._transport

    async def _listening(self, stack: contextlib.AsyncExitStack, job_id: str) -> AsyncIterator[bytes | None] | None:
        """Subscribe to a job until the stack ends; None if that takes long, because submitting then fails sooner with
        the cause.
        """
        try:
            async with asyncio.timeout(_LISTEN_SECONDS):
                return await stack.enter_async_context(self._queue.subscribe(job_id))
        except (TimeoutError, QueueUnavailable):
            return None

    async def _in_time(
        self,
        job_id: str,
        waiting: Awaitable[Result],
        timeout: float | None,
        ended: Callable[[], None],
        *,
        cancels: bool,
    ) -> Result:
        """Return the result that `waiting` returns in time, if the job completed; call `ended` once it has ended.

        With `cancels` the job is cancelled if `ended` is not called.
        """
        seconds = self._timeout_seconds if timeout is None else timeout
        try:
            async with asyncio.timeout(seconds):
                result = await waiting
                ended()
                cancels = False
                result = await with_output(result, self._read_object)
        except TimeoutError:
            raise await timed_out(self.state(job_id), job_id, seconds, cancelled=cancels) from None
        return events.completed(result)

    async def _put(self, jobs: Sequence[Job]) -> list[str]:
        try:
            with sending([within(self._allowed, checked(job)) for job in jobs]) as traced:
                ids = await self._queue.submit(traced)
        except Rejected as error:  # text that UTF-8 cannot encode, which a command line may contain
            raise InvalidJob.of(error) from error
        if self._cancel_on_exit:
            self._open.update(ids)
        await self._unserved.check(jobs)
        return ids

    @contextlib.asynccontextmanager
    async def _left_or_ended(self, job_id: str, cancel_on_exit: bool | None) -> AsyncIterator[Callable[[], None]]:
        """Cancel the job, if that is wanted, when the caller leaves without having called the yielded function."""
        cancels = self._cancels(cancel_on_exit)

        def ended() -> None:
            nonlocal cancels
            cancels = False
            self._open.discard(job_id)

        if cancels:
            self._open.add(job_id)
        try:
            yield ended
        finally:
            if cancels:
                await self._cancel_left(job_id)
                # not before: a client that closes meanwhile cancels the job itself
                self._open.discard(job_id)

    def _cancels(self, cancel_on_exit: bool | None) -> bool:
        return self._cancel_on_exit if cancel_on_exit is None else cancel_on_exit

    async def _cancel_left(self, job_id: str) -> None:
        with contextlib.suppress(StoopError):
            await self.cancel(job_id)
