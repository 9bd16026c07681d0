"""The gateway as an ASGI application: the table of routes under keys, an access log around everything."""

import contextlib
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.exceptions import ExceptionMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route as StarletteRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from stoop.errors import StoopError
from stoop.gateway.access_log import AccessLog
from stoop.gateway.batch_run import running_batches
from stoop.gateway.call import Call
from stoop.gateway.errors import ApiError, from_stoop
from stoop.gateway.gateway import Gateway
from stoop.gateway.keys import OPEN, secret_of
from stoop.gateway.openapi import document
from stoop.gateway.other_pages import refuse_other_pages
from stoop.gateway.route import Route
from stoop.gateway.routes import ROUTES
from stoop.gateway.traces import exporting_spans
from stoop.gateway.wait import CallerLeft

__all__ = ["make_app"]

_LEFT: Final = 499
"""The status that the access log shows for a caller that left; it is never sent."""

_CODES: Final = {404: "unknown_url", 405: "method_not_allowed"}
_LIMITS: Final = tuple(
    f"x-ratelimit-{what}-{kind}" for what in ("limit", "remaining", "reset") for kind in ("requests", "tokens")
)
_EXPOSED: Final = ("x-request-id", "retry-after", "x-stoop-job-id", "x-stoop-lane", "idempotent-replayed", *_LIMITS)


def make_app(gateway: Gateway) -> AccessLog:
    """Return the application that serves this gateway."""

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        with exporting_spans(gateway.spans):
            async with gateway.running(), running_batches(gateway), _other_protocols(gateway):
                yield

    # one for each path, so that the answer to a wrong method names all of the path's methods
    paths: dict[str, dict[str, Route]] = {}
    for route in ROUTES:
        paths.setdefault(route.path, {})[route.method] = route
    routes = [
        StarletteRoute(path, _Endpoint(gateway, methods), methods=list(methods), name=path)
        for path, methods in paths.items()
    ]
    refusals: dict[Any, Any] = {ApiError: _refused, StoopError: _failed, HTTPException: _unknown, CallerLeft: _left}
    app = _App(routes=routes, lifespan=lifespan, exception_handlers=refusals, middleware=_cors(gateway))
    app.state.document = document(ROUTES)
    return AccessLog(app, gateway.metrics, gateway.spans)


def _other_protocols(gateway: Gateway) -> contextlib.AbstractAsyncContextManager[None]:
    if gateway.options.grpc is None:
        return contextlib.nullcontext()
    # its packages are an extra
    from stoop.gateway.grpc.server import serving_grpc

    return serving_grpc(gateway)


class _App(Starlette):
    """Starlette without its outermost layer, because the access log answers unforeseen exceptions."""

    def build_middleware_stack(self) -> ASGIApp:
        app: ASGIApp = ExceptionMiddleware(self.router, self.exception_handlers)
        for cls, args, kwargs in reversed(self.user_middleware):
            app = cls(app, *args, **kwargs)
        return app


class _Endpoint:
    """Serves the methods of one path, as an ASGI application: Starlette wraps every function in two more layers."""

    def __init__(self, gateway: Gateway, methods: Mapping[str, Route]) -> None:
        self._gateway = gateway
        self._methods = methods

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        response = await self._answer(Request(scope, receive, send))
        await response(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        gateway = self._gateway
        route = self._methods["GET" if request.method == "HEAD" else request.method]
        request.state.facts["route"] = route.path
        key = OPEN if route.scope is None else gateway.admit(secret_of(request.headers), route.scope)
        call = Call(gateway, request, key, request.state.headers)
        if route.scope is not None:
            if key is OPEN:
                refuse_other_pages(request.method, request.headers, gateway.options)
            call.note(key=key.id, tenant=key.tenant)
            await call.count()
        return await route.run(call)


def _cors(gateway: Gateway) -> list[Middleware]:
    if not gateway.options.origins:
        return []
    return [
        Middleware(
            CORSMiddleware,
            allow_origins=gateway.options.origins,
            allow_methods=["GET", "POST", "DELETE"],
            # clients send many headers of their own, and none of them grants a right
            allow_headers=["*"],
            expose_headers=_EXPOSED,
        )
    ]


async def _refused(request: Request, error: ApiError) -> Response:
    request.state.facts["code"] = error.code
    if error.job_id is not None:
        request.state.facts["job"] = error.job_id
    response = Response(error.body, error.status, error.headers, media_type="application/json")
    for name, value in request.state.headers.items():
        response.headers.setdefault(name, value)
    return response


async def _failed(request: Request, error: StoopError) -> Response:
    return await _refused(request, from_stoop(error, request.state.headers.get("x-stoop-job-id")))


async def _unknown(request: Request, error: HTTPException) -> Response:
    code = _CODES.get(error.status_code, "invalid_request")
    response = await _refused(request, ApiError(error.status_code, code, f"{error.detail}: see /docs for the routes"))
    for name, value in (error.headers or {}).items():
        response.headers[name] = value
    return response


async def _left(request: Request, error: CallerLeft) -> Response:
    return Response(status_code=_LEFT)
