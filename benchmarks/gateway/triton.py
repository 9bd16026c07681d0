"""The same questions by `AsyncClient`, by the gateway and by a real Triton, in turn: what does Triton add?"""

import asyncio
import json
import os
import re
import tempfile
import time
import urllib.request
from collections.abc import Awaitable, Callable
from pathlib import Path
from statistics import median
from typing import Any, Final

from benchmarks.gateway.http_client import Connection
from benchmarks.gateway.latency import QUESTION, first_piece, summary
from benchmarks.gateway.stack import Stack
from stoop import AsyncClient
from tests.clients.environments import TRITON_SERVER, install
from tests.support.triton_server import ROOT, TritonServer, running_triton

__all__ = ["measure_triton"]

_GENERATE: Final = "/v2/models/moondream/generate"
_WHOLE: Final = {"SKILL": "query", "QUESTION": QUESTION}
_STREAMED: Final = {**_WHOLE, "STREAM": True}
_ROUNDS: Final = 5

Ask = Callable[[], Awaitable[object]]


async def measure_triton(stack: Stack, count: int, callers: int, seconds: float) -> dict[str, Any]:
    """Return latencies in milliseconds, one caller, and requests a second of many, in five alternating rounds.

    Triton's environment is that of `make clients`.
    """
    folder = Path(os.environ.get("STOOP_CLIENTS_FOLDER") or ROOT / ".clients") / "triton-server"
    python = Path((await asyncio.to_thread(install, TRITON_SERVER, folder))[0])
    variables = {**os.environ, "STOOP_REDIS_URL": stack.config.redis_url.get_secret_value()}
    with tempfile.TemporaryDirectory() as name, running_triton(Path(name), python, variables) as server:
        await asyncio.to_thread(_check, server)
        async with AsyncClient(stack.config) as client:
            latency = await _latency(stack, server, client, count)
            before = _megabytes(server)
            rates = await _rates(stack, server, client, callers, seconds)
            memory = {"before": before, "after": _megabytes(server)}
    added = {
        "added p50 ms": round(latency["triton"]["p50"] - latency["client"]["p50"], 2),
        "added first piece p50 ms": round(latency["triton first"]["p50"] - latency["client first"]["p50"], 2),
    }
    many = {"callers": callers, "requests a second": rates, "megabytes of Triton and its stub": memory}
    return {"kind": "triton", "count": count, **latency, **added, **many}


def _check(server: TritonServer) -> None:
    """Check that Triton answers these questions rightly, before it is measured."""
    for route, body in ((_GENERATE, _WHOLE), (f"{_GENERATE}_stream", _STREAMED)):
        request = urllib.request.Request(
            server.http + route, json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=60) as response:
            last = response.read().decode().strip().splitlines()[-1]
        answer = json.loads(json.loads(last.removeprefix("data: "))["TEXT_OUTPUT"])
        assert answer["answer"] == QUESTION and answer["finish_reason"] == "stop", answer


async def _latency(stack: Stack, server: TritonServer, client: AsyncClient, count: int) -> dict[str, dict[str, float]]:
    gateway, triton = Connection(stack.host, stack.port), _connection(server)
    found: dict[str, list[float]] = {
        name: [] for name in ("client", "gateway", "triton", "client first", "gateway first", "triton first")
    }
    for number in range(count + count // 10):
        kept = found if number >= count // 10 else {name: [] for name in found}
        began = time.perf_counter()
        await client.query(question=QUESTION)
        kept["client"].append(time.perf_counter() - began)
        kept["gateway"].append((await gateway.ask("/v1/query", {"question": QUESTION})).whole)
        kept["triton"].append((await triton.ask(_GENERATE, _WHOLE)).whole)
        kept["client first"].append(await first_piece(client))
        kept["gateway first"].append((await gateway.ask("/v1/query", {"question": QUESTION, "stream": True})).first)
        kept["triton first"].append((await triton.ask(f"{_GENERATE}_stream", _STREAMED)).first)
    gateway.close()
    triton.close()
    return {name: summary(seconds) for name, seconds in found.items()}


async def _rates(
    stack: Stack, server: TritonServer, client: AsyncClient, callers: int, seconds: float
) -> dict[str, Any]:
    def by_client() -> Ask:
        return lambda: client.query(question=QUESTION)

    def by_gateway() -> Ask:
        connection = Connection(stack.host, stack.port)
        return lambda: _answered(connection, "/v1/query", {"question": QUESTION})

    def by_triton() -> Ask:
        connection = _connection(server)
        return lambda: _answered(connection, _GENERATE, _WHOLE)

    rounds: dict[str, list[float]] = {"client": [], "gateway": [], "triton": []}
    for _ in range(_ROUNDS):
        for name, new_ask in (("client", by_client), ("gateway", by_gateway), ("triton", by_triton)):
            rounds[name].append(await _rate([new_ask() for _ in range(callers)], seconds))
    medians = {name: round(median(rates)) for name, rates in rounds.items()}
    ratios = [triton / client for triton, client in zip(rounds["triton"], rounds["client"], strict=True)]
    return {"rounds": rounds, "median": medians, "triton / client": round(median(ratios), 2)}


async def _answered(connection: Connection, path: str, body: object) -> None:
    answer = await connection.ask(path, body)
    assert answer.status == 200, answer.status


async def _rate(asks: list[Ask], seconds: float) -> float:
    """Return the requests a second of all callers together; each asks one question after another."""
    began, done = time.perf_counter(), 0

    async def call(ask: Ask) -> None:
        nonlocal done
        while time.perf_counter() < began + seconds:
            await ask()
            done += 1

    await asyncio.gather(*map(call, asks))
    return round(done / (time.perf_counter() - began), 1)


def _megabytes(server: TritonServer) -> float:
    """Return the resident memory of Triton and its children."""
    assert server.child.process is not None
    pid = server.child.process.pid
    status = [path.read_text() for path in Path("/proc").glob("[0-9]*/status")]
    own = [text for text in status if re.search(rf"^(Pid|PPid):\t{pid}$", text, re.MULTILINE)]
    return sum(int(found[1]) for text in own if (found := re.search(r"VmRSS:\s+(\d+)", text))) // 1024


def _connection(server: TritonServer) -> Connection:
    host, _, port = server.http.removeprefix("http://").partition(":")
    return Connection(host, int(port))
