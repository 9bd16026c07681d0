"""Bounds on the calls in progress, with a server in this process, whose bounds are small."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
from structlog.testing import CapturingLogger

from stoop.config import ProducerConfig
from stoop.gateway.gateway import Gateway
from stoop.gateway.options import ServeOptions

pytest.importorskip("grpc")

import grpc

from stoop.gateway.grpc import server
from stoop.gateway.grpc.messages import GRPC_NAME, message_class
from stoop.gateway.grpc.rpcs import STREAM

SECONDS = 30.0
REQUEST = message_class("ModelInferRequest")(id="mine").SerializeToString()


@pytest.fixture
async def address(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], log: CapturingLogger
) -> AsyncIterator[str]:
    """A server that has room for four calls, two of them on one connection. Its queue is never asked."""
    monkeypatch.setattr(server, "_MOST_CALLS", 4)
    monkeypatch.setattr(server, "_MOST_CALLS_OF_ONE", 2)
    gateway = Gateway(ProducerConfig(), ServeOptions(open=True, grpc="127.0.0.1:0", drain_seconds=0.0))
    async with gateway.running(), server.serving_grpc(gateway):
        yield capsys.readouterr().err.partition("answers gRPC on ")[2].strip()


@contextlib.asynccontextmanager
async def connected(address: str) -> AsyncIterator[Any]:
    """A connection of its own."""
    async with grpc.aio.insecure_channel(address, [("grpc.use_local_subchannel_pool", 1)]) as channel:
        yield channel.stream_stream(f"/{GRPC_NAME}/{STREAM.name}")


async def begin(opened: Any) -> Any:
    """Open a stream and return it once the server has answered a request of it, which lacks its inputs."""
    stream = opened()
    await stream.write(REQUEST)
    await stream.read()
    return stream


async def test_calls_beyond_those_of_one_connection_wait_in_the_caller(address: str) -> None:
    async with asyncio.timeout(SECONDS), connected(address) as one, connected(address) as other:
        first, _ = await begin(one), await begin(one)
        third = asyncio.create_task(begin(one))
        assert await begin(other), "another caller has its own room"
        assert not third.done()
        first.cancel()
        await third


async def test_calls_beyond_those_of_a_server_are_refused(address: str) -> None:
    async with contextlib.AsyncExitStack() as stack, asyncio.timeout(SECONDS):
        one, two, three = [await stack.enter_async_context(connected(address)) for _ in range(3)]
        streams = [await begin(each) for each in (one, one, two, two)]
        # without a request: gRPC's client reports INTERNAL if the refusal comes before its first request has left
        assert await three().code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        streams[0].cancel()
        while True:  # the server notices it soon
            with contextlib.suppress(grpc.aio.AioRpcError):
                await begin(three)
                break
