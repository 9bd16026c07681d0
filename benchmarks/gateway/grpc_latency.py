"""The same questions by `AsyncClient`, HTTP and gRPC in turn: what each adds, and how many a gateway answers."""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from statistics import median
from typing import Any

from grpc.aio import Channel, insecure_channel

from benchmarks.gateway.http_client import Connection
from benchmarks.gateway.latency import QUESTION, first_piece, summary
from benchmarks.gateway.stack import Stack
from stoop import AsyncClient
from stoop.gateway.grpc.messages import GRPC_NAME, message_class

__all__ = ["measure_grpc"]

_CALLERS = 64
_WINDOWS = 7
_Request = message_class("ModelInferRequest")
_Response = message_class("ModelInferResponse")
_Streamed = message_class("ModelStreamInferResponse")


async def measure_grpc(stack: Stack, count: int, seconds: float) -> dict[str, Any]:
    """Return latencies in milliseconds, and requests a second of 64 callers in alternate windows of HTTP and gRPC."""
    async with insecure_channel(stack.grpc) as channel:
        await _check(channel)
        latency = await _latency(stack, channel, count)
        rates: dict[str, list[tuple[float, float]]] = {"http": [], "grpc": []}
        for _ in range(_WINDOWS):
            rates["http"].append(await _rate(stack, lambda: _by_http(stack), seconds))
            rates["grpc"].append(await _rate(stack, lambda: _by_grpc(channel), seconds))
    rows = {
        name: {
            "requests/s": round(median(rate for rate, _ in found)),
            "requests/s a core of the gateway": round(median(core for _, core in found)),
        }
        for name, found in rates.items()
    }
    ratios = [by_grpc[1] / by_http[1] for by_http, by_grpc in zip(rates["http"], rates["grpc"], strict=True)]
    ratio = {"median": round(median(ratios), 3), "least": round(min(ratios), 3), "most": round(max(ratios), 3)}
    found = {"callers": _CALLERS, **rows, "a core, grpc / http": ratio}
    return {"kind": "gateway gRPC", "count": count, "latency": latency, "rates": found}


def _message(*, stream: bool) -> bytes:
    request = _Request(model_name="moondream")
    for name, value in (("SKILL", "query"), ("QUESTION", QUESTION)):
        request.inputs.add(name=name, datatype="BYTES", shape=[1]).contents.bytes_contents.append(value.encode())
    request.inputs.add(name="STREAM", datatype="BOOL", shape=[1]).contents.bool_contents.append(stream)
    written: bytes = request.SerializeToString()
    return written


_PLAIN, _STREAM = _message(stream=False), _message(stream=True)


def _infer(channel: Channel) -> Any:
    return channel.unary_unary(f"/{GRPC_NAME}/ModelInfer")


async def _check(channel: Channel) -> None:
    """Raise unless both calls answer with the words of the question."""
    whole = _Response.FromString(await _infer(channel)(_PLAIN))
    assert json.loads(whole.outputs[0].contents.bytes_contents[0])["answer"] == QUESTION
    call = channel.stream_stream(f"/{GRPC_NAME}/ModelStreamInfer")(iter([_STREAM]))
    texts = [
        json.loads(_Streamed.FromString(each).infer_response.outputs[0].contents.bytes_contents[0])
        async for each in call
    ]
    assert "".join(text["chunk"] for text in texts) == texts[-1]["answer"] == QUESTION


async def _latency(stack: Stack, channel: Channel, count: int) -> dict[str, Any]:
    connection, infer = Connection(stack.host, stack.port), _infer(channel)
    stream = channel.stream_stream(f"/{GRPC_NAME}/ModelStreamInfer")()
    found: dict[str, list[float]] = {
        name: [] for name in ("client", "http", "grpc", "client first", "http first", "grpc first")
    }

    async def grpc_first() -> float:
        began, first = time.perf_counter(), 0.0
        await stream.write(_STREAM)
        final = False
        while not final:
            response = _Streamed.FromString(await stream.read()).infer_response
            first = first or time.perf_counter() - began
            final = response.parameters["triton_final_response"].bool_param
        return first

    async with AsyncClient(stack.config) as client:
        for number in range(count + count // 10):
            kept = found if number >= count // 10 else {name: [] for name in found}
            kept["client"].append(await _timed(lambda: client.query(question=QUESTION)))
            kept["http"].append((await connection.ask("/v1/query", {"question": QUESTION})).whole)
            kept["grpc"].append(await _timed(lambda: infer(_PLAIN)))
            kept["client first"].append(await first_piece(client))
            kept["http first"].append((await connection.ask("/v1/query", {"question": QUESTION, "stream": True})).first)
            kept["grpc first"].append(await grpc_first())
    await stream.done_writing()
    connection.close()
    table = {name: summary(times) for name, times in found.items()}
    added = {
        f"{name} adds p50 ms": round(
            table[name]["p50"] - table["client first" if "first" in name else "client"]["p50"], 2
        )
        for name in ("http", "grpc", "http first", "grpc first")
    }
    return {**table, **added}


async def _timed(ask: Callable[[], Awaitable[object]]) -> float:
    began = time.perf_counter()
    await ask()
    return time.perf_counter() - began


async def _rate(
    stack: Stack, caller: Callable[[], Callable[[], Awaitable[object]]], seconds: float
) -> tuple[float, float]:
    """Return requests a second, and per second of the gateway's CPU time."""
    cpu, began = stack.cpu_seconds(), time.perf_counter()
    answered = 0

    async def call() -> None:
        nonlocal answered
        ask = caller()
        while time.perf_counter() < began + seconds:
            await ask()
            answered += 1

    await asyncio.gather(*(call() for _ in range(_CALLERS)))
    return answered / (time.perf_counter() - began), answered / (stack.cpu_seconds() - cpu)


def _by_http(stack: Stack) -> Callable[[], Awaitable[object]]:
    connection = Connection(stack.host, stack.port)

    async def ask() -> None:
        assert (await connection.ask("/v1/query", {"question": QUESTION})).status == 200

    return ask


def _by_grpc(channel: Channel) -> Callable[[], Awaitable[object]]:
    infer = _infer(channel)
    return lambda: infer(_PLAIN)
