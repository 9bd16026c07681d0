"""What probes and Prometheus ask for: whether Redis answers, whether requests are welcome, and the metrics."""

import asyncio
from typing import Final

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.responses import Response

from stoop.errors import StoopError
from stoop.gateway.answer import json_response
from stoop.gateway.call import Call
from stoop.gateway.errors import ApiError
from stoop.gateway.gateway import Gateway

__all__ = ["healthz", "living_workers", "readyz", "show_metrics"]

_SECONDS: Final = 2.0


async def healthz(call: Call) -> Response:
    """Answer 200 if Redis answers; with `?workers=1` also only if a worker is alive."""
    workers = await living_workers(call.gateway)
    if call.request.query_params.get("workers") == "1" and not workers:
        raise ApiError(503, "no_worker", "there is no live worker")
    return json_response(call, {"status": "ok", "workers": workers})


async def readyz(call: Call) -> Response:
    """Answer 200 if requests are welcome: not while the gateway drains or Redis is away."""
    if call.gateway.draining:
        raise ApiError(503, "draining", "the gateway is shutting down")
    return await healthz(call)


async def show_metrics(call: Call) -> Response:
    """Answer `GET /metrics`."""
    written = generate_latest(call.gateway.metrics.registry)
    return Response(written, headers={**call.headers, "content-type": CONTENT_TYPE_LATEST})


async def living_workers(gateway: Gateway) -> int:
    """Return the number of living workers; raise an `ApiError` (503) if Redis does not answer."""
    try:
        async with asyncio.timeout(_SECONDS):
            models = await gateway.client.models()
    except (StoopError, TimeoutError):
        raise ApiError(503, "queue_unavailable", "the queue cannot be reached") from None
    return sum(model.workers for model in models)
