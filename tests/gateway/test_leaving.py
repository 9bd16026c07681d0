"""Callers that leave while their jobs are submitted, a moment that no real connection meets on demand."""

import asyncio
import json
from typing import Any

import pytest
from structlog.testing import CapturingLogger

from stoop.client.async_client import AsyncClient
from stoop.config import ProducerConfig
from stoop.gateway.app import make_app
from stoop.gateway.gateway import Gateway
from stoop.gateway.options import ServeOptions
from tests.producer.scripted import SlowToSubmit

SECONDS = 10.0


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("comes_back", [False, True])
async def test_a_job_is_cancelled_unless_its_caller_can_come_back(
    comes_back: bool, stream: bool, log: CapturingLogger
) -> None:
    config, transport, left = ProducerConfig(), SlowToSubmit(), asyncio.Event()
    gateway = Gateway(config, ServeOptions(open=True))
    gateway.client = AsyncClient(config, transport=transport)
    body = [{"type": "http.request", "body": json.dumps({"question": "how many?", "stream": stream}).encode()}]
    sent: list[Any] = []

    async def receive() -> Any:
        if body:
            return body.pop()
        await left.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)

    headers = [(b"content-type", b"application/json"), *([(b"idempotency-key", b"mine")] if comes_back else [])]
    scope = {"type": "http", "method": "POST", "path": "/v1/query", "headers": headers, "query_string": b""}
    async with gateway.running(), asyncio.timeout(SECONDS):
        asking = asyncio.ensure_future(make_app(gateway)(scope, receive, send))
        await transport.begun.wait()
        left.set()
        await asking
    assert sent[0]["status"] == log.calls[0].kwargs["status"] == 499
    assert transport.cancelled == ([] if comes_back else [transport.submitted[0].id])
