"""The worker's traces, if OpenTelemetry's variables ask for them."""

import contextlib
import os
from collections.abc import AsyncIterator

import structlog

from stoop_schemas.tracing import TracesUnavailable, captures_content, exporting, traces_wanted
from stoop_worker.jobs.executor import Spans
from stoop_worker.jobs.publisher import Identity
from stoop_worker.jobs.redis.history import AttemptHistory

__all__ = ["running_spans"]

log = structlog.get_logger(__name__)


@contextlib.asynccontextmanager
async def running_spans(identity: Identity, redis_url: str) -> AsyncIterator[Spans | None]:
    """Export the spans of deliveries inside the `with`; None if traces are off or cannot be exported."""
    if not traces_wanted(os.environ):
        yield None
        return
    with contextlib.ExitStack() as stack:
        try:
            export = stack.enter_context(exporting("stoop-worker", **{"service.instance.id": identity.worker}))
        except TracesUnavailable as error:
            log.warning("no traces are exported", problem=str(error))
            yield None
            return
        from stoop_worker.jobs.spans.job_spans import JobSpans

        history = AttemptHistory(redis_url)
        try:
            yield JobSpans(export, identity, history, content=captures_content(os.environ))
        finally:
            await history.close()
