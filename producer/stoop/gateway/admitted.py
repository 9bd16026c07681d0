"""A call in progress over any protocol: the caller's key and everything that the answer needs."""

import re
import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Final, TypeVar

from stoop.gateway.errors import ApiError, shutting_down
from stoop.gateway.follower import Follower
from stoop.gateway.gateway import Gateway
from stoop.gateway.keys import ApiKey
from stoop.gateway.wait import Wait
from stoop_schemas.result import Result
from stoop_schemas.traceparent import is_traceparent

__all__ = ["AdmittedCall", "request_id_of"]

_T = TypeVar("_T")

_REQUEST_ID: Final = re.compile(r"[A-Za-z0-9._:-]{1,128}")


class AdmittedCall(ABC):
    """An admitted call. `headers` go with the answer, whatever it is."""

    gateway: Gateway
    key: ApiKey
    headers: dict[str, str]

    @property
    @abstractmethod
    def state(self) -> Any:
        """The call's fields for the access log: `request_id`, `facts`, `closers`, `tokens`, maybe `traceparent`."""

    @abstractmethod
    def header(self, name: str) -> str | None:
        """Return a header of the caller by its name in lower case, None if it is absent or empty."""

    @abstractmethod
    async def left(self) -> None:
        """Return when the caller has left. A protocol that cancels the call at that moment never returns."""

    def note(self, **facts: object) -> None:
        """Add facts to the access log; never a caller's text."""
        self.state.facts.update(facts)

    def spent(self, result: Result) -> None:
        """Count the tokens of a result for the key's limits and the access log."""
        self.state.tokens += result.metrics.input_tokens + result.metrics.output_tokens
        self.note(tokens=self.state.tokens)

    def closes(self, close: Callable[[], object]) -> None:
        """Call this when the answer has ended, however it ends."""
        self.state.closers.append(close)

    @property
    def keeps_job(self) -> bool:
        """Return whether the job keeps running after its caller has left, because the caller can ask for it again."""
        return self.idempotency_key is not None

    @property
    def request_id(self) -> str:
        """The id under which the access log has this call."""
        return str(self.state.request_id)

    @property
    def idempotency_key(self) -> str | None:
        """The header `Idempotency-Key`."""
        return self.header("idempotency-key")

    @property
    def traceparent(self) -> str | None:
        """The context of the call's span or, if it has none, the header `traceparent`.

        A malformed header is ignored, as its specification asks.
        """
        own: str | None = getattr(self.state, "traceparent", None)
        given = own or self.header("traceparent")
        return given if own or is_traceparent(given) else None

    async def count(self) -> None:
        """Count the call for the limits of its key; raise an `ApiError` (429) if the key has reached one."""
        counted = await self.gateway.limits.count(self.key)
        if counted is None:
            return
        self.headers.update(counted.headers)
        if counted.wait > 0:
            message = f"this API key has reached a limit: try again in {counted.wait:.1f} s"
            raise ApiError(429, "rate_limit_exceeded", message, retry_after=counted.wait)
        self.closes(lambda: self.gateway.limits.end(counted, self.state.tokens))

    def follow(self, job_id: str, **how: Any) -> Follower:
        """Follow a job until the call's answer has ended; `how` are further arguments of `Follower`."""
        follower = self.gateway.follow(job_id, **how)
        self.closes(partial(self.gateway.leave, follower))
        return follower

    async def unless_left(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Return what `work` returns. Cancel it when the caller leaves first, or when the gateway must close.

        Raises `CallerLeft` or an `ApiError` (503), and the errors of `work`.
        """
        waits = self.gateway.waits
        if self.gateway.closing.done():
            work.close()
            raise shutting_down()
        wait = Wait(self.left)
        waits.add(wait)
        try:
            return await wait.run(work)
        finally:
            waits.discard(wait)


def request_id_of(given: str | None) -> str:
    """Return the caller's own request id if it is one, otherwise a new one."""
    if given is not None and _REQUEST_ID.fullmatch(given):
        return given
    return f"req-{secrets.token_hex(12)}"
