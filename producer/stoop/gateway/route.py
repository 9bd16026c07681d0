"""One row of the table of routes."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from starlette.responses import Response

from stoop.gateway.call import Call
from stoop.gateway.keys import Scope

__all__ = ["Route"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """One method of one path, as the router, the check of keys and the OpenAPI document need it.

    Without a `scope` anybody may call it. `body` and `answer` are the types of the JSON; `form` names the fields of a
    multipart form. `statuses` are the statuses of success; a stream may replace the answer if it `streams`.
    """

    method: str
    path: str
    run: Callable[[Call], Awaitable[Response]]
    summary: str
    tag: str
    scope: Scope | None = Scope.JOBS
    body: Any = None
    answer: Any = None
    form: Sequence[str] = ()
    statuses: Sequence[int] = (200,)
    streams: bool = False
    query: Sequence[str] = ()
    media_type: str = "application/json"
