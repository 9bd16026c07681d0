"""The spans of a delivery, made after its end from times that the worker measures anyway."""

from collections.abc import Callable
from typing import Final, Protocol

from opentelemetry.trace import SpanContext, SpanKind

from stoop_schemas.job import Job
from stoop_schemas.result import Result
from stoop_schemas.traceparent import is_traceparent
from stoop_schemas.tracing import Export
from stoop_worker.jobs.broker import Delivery
from stoop_worker.jobs.publisher import Identity
from stoop_worker.jobs.redis.history import LostAttempt
from stoop_worker.jobs.spans import attributes
from stoop_worker.jobs.spans.choice import SpanChoice
from stoop_worker.jobs.spans.finished import ERROR_TYPE, FinishedSpans
from stoop_worker.jobs.spans.stages import stages_of
from stoop_worker.metrics import Ending

__all__ = ["JobSpans"]

_MS: Final = 1_000_000  # nanoseconds in a millisecond
_FAILED: Final = frozenset({"failed", "dead", "retry", "expired"})
# the next attempt records it, from the job's hash, as it does for a worker that died
_CRASHED: Final = "crashed"
_RELEASED: Final = "released"


class _History(Protocol):
    """Knows the attempts whose worker could not settle them."""

    async def lost_before(self, delivery: Delivery) -> list[LostAttempt]:
        """Return the lost attempts directly before this one, the latest first."""


class JobSpans:
    """Makes the spans of each delivery that this worker settled, in the trace of its job.

        queue      from the submission to the claim of the first attempt
        process    an attempt, from its claim to its end; also one whose worker died, as recorded in Redis
          fetch, image, generate (with prefill and decode), settle

    With `content` spans have questions and answers.
    """

    def __init__(self, export: Export, identity: Identity, history: _History, *, content: bool = False) -> None:
        self._spans = FinishedSpans(export, "stoop.worker")
        self._choice = SpanChoice(export.provider.sampler)
        self._identity = identity
        self._history = history
        self._content = content

    def may_keep(self, delivery: Delivery) -> bool:
        """Return False if the delivery's trace is not kept; most are not, so this takes less than a microsecond."""
        return self._choice.may_keep(delivery)

    async def record(self, delivery: Delivery, ending: Ending, ran: float, read: Callable[[], Job | None]) -> None:
        """Make the spans of a settled delivery. The run took `ran` seconds; `read` parses the job, if that is needed.

        Nothing is made for a delivery that this worker had lost: the attempt is then in its successor's spans.
        """
        if not ending.ours or ending.outcome == _CRASHED:
            return
        name = f"process {ending.lane}"
        parent = self._choice.parent(delivery, self._traceparent(delivery, read), name)
        if parent is None:
            return
        lost = [] if ending.outcome == _RELEASED else await self._history.lost_before(delivery)
        self._add_lost(delivery, ending.lane, parent, lost)
        self._add_queue(delivery, parent, lost)
        claimed = delivery.claimed_at * _MS
        answered = (delivery.claimed_at + round(1000 * ran)) * _MS
        ended = max(answered, delivery.queued_at * _MS + round(1000 * ending.seconds) * _MS)
        process = self._spans.under(parent)
        if ending.result is not None:
            self._add_result(process, delivery, ending.result, answered, read)
        self._spans.add(f"settle {ending.lane}", process, (answered, ended), kind=SpanKind.CLIENT)
        described = attributes.delivered(delivery, ending.lane, delivery.attempt, self._identity.worker)
        described["stoop.outcome"] = ending.outcome
        if ending.outcome in _FAILED:
            described[ERROR_TYPE] = ending.code or ending.outcome
        times = (claimed, ended)
        self._spans.add(name, parent, times, kind=SpanKind.CONSUMER, attributes=described, context=process)

    def _add_result(
        self,
        process: SpanContext,
        delivery: Delivery,
        result: Result,
        answered: int,
        read: Callable[[], Job | None],
    ) -> None:
        job = read() if result.output is not None else None
        if job is None:
            return
        model, around = self._identity.model, process
        for stage in stages_of(result.metrics, delivery.claimed_at * _MS, answered):
            if stage.name != "generate":
                self._spans.add(stage.name, around, (stage.start, stage.end))
                continue
            described = attributes.answered(job, result, model) | {"stoop.skill": job.skill}
            if self._content:
                described |= attributes.content(job, result)
            around = self._spans.under(process)
            self._spans.add(
                f"{attributes.operation(job.skill)} {model}",
                process,
                (stage.start, stage.end),
                attributes=described,
                context=around,
            )

    def _add_lost(self, delivery: Delivery, lane: str, parent: SpanContext, lost: list[LostAttempt]) -> None:
        for attempt in reversed(lost):
            described = attributes.delivered(delivery, lane, attempt.attempt, attempt.worker)
            self._spans.add(
                f"process {lane}",
                parent,
                (attempt.claimed_at * _MS, attempt.lost_at * _MS),
                kind=SpanKind.CONSUMER,
                attributes={**described, "stoop.outcome": "lost", ERROR_TYPE: "worker_lost"},
            )

    def _add_queue(self, delivery: Delivery, parent: SpanContext, lost: list[LostAttempt]) -> None:
        first = lost[-1].attempt if lost else delivery.attempt
        claimed = lost[-1].claimed_at if lost else delivery.claimed_at
        if first == 1:
            self._spans.add("queue", parent, (delivery.queued_at * _MS, max(delivery.queued_at, claimed) * _MS))

    def _traceparent(self, delivery: Delivery, read: Callable[[], Job | None]) -> str | None:
        if not delivery.celery:
            return self._choice.traceparent(delivery)
        job = read()
        found = None if job is None else job.traceparent
        return found if is_traceparent(found) else None
