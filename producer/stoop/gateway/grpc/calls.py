"""Runs each call under its key and limits, and writes its line of the log, its metrics and its span.

As over HTTP, the log has no metadata and no message of a caller, because all of these may hold content or secrets.
"""

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import structlog
from grpc import StatusCode

from stoop.errors import StoopError
from stoop.gateway.access_log import place_of
from stoop.gateway.admitted import request_id_of
from stoop.gateway.errors import ApiError, from_stoop
from stoop.gateway.gateway import Gateway
from stoop.gateway.grpc.messages import GRPC_NAME
from stoop.gateway.grpc.metrics import GrpcMetrics
from stoop.gateway.grpc.rpc import Rpc
from stoop.gateway.grpc.rpc_call import CallState, RpcCall
from stoop.gateway.keys import OPEN, secret_of
from stoop.gateway.kserve.codes import codes_of
from stoop.gateway.traces import name_job
from stoop.gateway.wait import CallerLeft
from stoop_schemas.tracing import mark_failed

if TYPE_CHECKING:
    from opentelemetry.trace import Span

__all__ = ["Calls", "Ended"]

_log: Any = structlog.get_logger()

_FAULTS: Final = frozenset({StatusCode.INTERNAL, StatusCode.UNKNOWN, StatusCode.UNAVAILABLE, StatusCode.DATA_LOSS})
"""Statuses that are the server's fault, and so an error of its span."""


@dataclass(frozen=True, slots=True)
class Ended:
    """A call that has ended: its answer, or the error instead of one. `metadata` is sent after either."""

    answer: Any
    error: ApiError | None
    metadata: tuple[tuple[str, str], ...]

    @property
    def status(self) -> StatusCode:
        """The status of the call."""
        return StatusCode.OK if self.error is None else StatusCode[codes_of(self.error).grpc]


class Calls:
    """Runs the calls of one gateway."""

    def __init__(self, gateway: Gateway) -> None:
        self.metrics = GrpcMetrics(gateway.metrics.registry, gateway.metrics.refused)
        self._gateway = gateway

    async def run(self, rpc: Rpc, metadata: Mapping[str, str], work: Callable[[RpcCall], Awaitable[Any]]) -> Ended:
        """Run the call. Raises `CancelledError` if the caller leaves."""
        state = CallState(request_id_of(metadata.get("x-request-id")), facts={"route": rpc.name})
        headers = {"x-request-id": state.request_id}
        attributes = {"rpc.system": "grpc", "rpc.service": GRPC_NAME, "rpc.method": rpc.name}
        began, error, status = time.perf_counter(), None, StatusCode.CANCELLED
        with self._gateway.spans.begin(f"{GRPC_NAME}/{rpc.name}", metadata, attributes) as begun:
            state.traceparent = begun.traceparent
            try:
                answer, error = await self._run(rpc, metadata, state, headers, work)
                ended = Ended(answer, error, tuple({**headers, **(_metadata_of(error) if error else {})}.items()))
                status = ended.status
                return ended
            finally:
                for close in state.closers:
                    close()
                if error is not None:
                    state.facts["code"] = error.code
                self._record(state, status, time.perf_counter() - began, begun.span)

    async def _run(
        self,
        rpc: Rpc,
        metadata: Mapping[str, str],
        state: CallState,
        headers: dict[str, str],
        work: Callable[[RpcCall], Awaitable[Any]],
    ) -> tuple[Any, ApiError | None]:
        try:
            key = OPEN if rpc.scope is None else self._gateway.admit(secret_of(metadata), rpc.scope)
            call = RpcCall(self._gateway, metadata, key, state, headers)
            if rpc.scope is not None:
                call.note(key=key.id, tenant=key.tenant)
                if rpc.limited:
                    await call.count()
            return await work(call), None
        except ApiError as error:
            return None, error
        except StoopError as error:
            return None, from_stoop(error, headers.get("x-stoop-job-id"))
        except CallerLeft:
            raise asyncio.CancelledError from None
        except Exception as error:
            _log.error("unforeseen", request=state.request_id, exception=place_of(error))
            problem = f"the gateway failed; its log has the place under {state.request_id}"
            return None, ApiError(500, "internal", problem)

    def _record(self, state: CallState, status: StatusCode, seconds: float, span: "Span | None") -> None:
        facts, name = state.facts, status.name
        _log.info("request", request=state.request_id, status=name, ms=round(1000 * seconds, 1), method="gRPC", **facts)
        self.metrics.ended(str(facts["route"]), name, seconds, facts.get("code"))
        if span is not None:
            span.set_attribute("rpc.grpc.status_code", status.value[0])
            name_job(span, facts)
            if status in _FAULTS:
                mark_failed(span, str(facts.get("code") or name))


def _metadata_of(error: ApiError) -> dict[str, str]:
    """Return the trailing metadata of an error: its code, the job's id, and the time to wait before another try."""
    metadata = {"x-stoop-error-code": error.code}
    if error.retry_after is not None:
        milliseconds = str(math.ceil(1000 * error.retry_after))
        # the second name is the one that gRPC's own retries read
        metadata |= {"retry-after-ms": milliseconds, "grpc-retry-pushback-ms": milliseconds}
    if error.job_id is not None:
        metadata["x-stoop-job-id"] = error.job_id
    return metadata
