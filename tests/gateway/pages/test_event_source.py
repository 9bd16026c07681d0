"""The browser's own EventSource, on a plain page of another origin: nothing of Stoop's runs in it."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.examples.conftest import Deployment
from tests.examples.streaming_child import words
from tests.gateway.conftest import SECONDS, StartGateway, http_client
from tests.gateway.pages.conftest import Browsing
from tests.support.lossy_network import lossy_network

expect = pytest.importorskip("playwright.async_api").expect
expect.set_options(timeout=20_000)

PAGE = b"<!doctype html><title>elsewhere</title><link rel=icon href=data:,>"

# keeps the number and the type of every event, and its text
_LISTEN = """(address) => {
  window.seen = [];
  window.source = new EventSource(address);
  for (const type of ["queued", "started", "delta", "restarted", "finished", "failed"])
    source.addEventListener(type, (event) => {
      const { seq, text = "" } = JSON.parse(event.data);
      seen.push({ id: event.lastEventId, seq, type, text });
    });
}"""
_TEXT = "seen.map((event) => event.text).join('')"
_CLOSED = "source.readyState === EventSource.CLOSED"


@contextlib.asynccontextmanager
async def elsewhere() -> AsyncIterator[str]:
    """Serve a page; yield its origin."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        head = b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\nconnection: close\r\ncontent-length: %d\r\n\r\n"
        writer.write(head % len(PAGE) + PAGE)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def test_a_plain_page_of_another_origin_follows_a_job_through_a_cut_connection(
    streaming_deployment: Deployment, start_gateway: StartGateway, gate: Path, browsing: Browsing
) -> None:
    async with asyncio.timeout(SECONDS), contextlib.AsyncExitStack() as stack:
        origin = await stack.enter_async_context(elsewhere())
        gateway = start_gateway(streaming_deployment, "--open", "--cors-origins", origin)
        parts = urlsplit(gateway.address)
        assert parts.hostname and parts.port
        network = await stack.enter_async_context(lossy_network(parts.hostname, parts.port))
        http = await stack.enter_async_context(http_client(gateway))
        # the browser writes about the connection that was cut
        page: Any = await stack.enter_async_context(browsing("ERR_"))
        job = {"skill": "query", "question": f"tell 40 until {gate}"}
        job_id = (await http.post("/v1/jobs", json=job)).json()["id"]
        await page.goto(origin)
        await page.evaluate(_LISTEN, f"http://127.0.0.1:{network.port}/v1/jobs/{job_id}/events")
        half, whole = "".join(words(40)[:20]), "".join(words(40))
        await page.wait_for_function(f"{_TEXT} === {half!r}")
        network.cut()
        gate.touch()
        await page.wait_for_function("seen.at(-1).type === 'finished'")
        assert await page.evaluate(_TEXT) == whole
        seen = await page.evaluate("seen")
        assert [event["seq"] for event in seen] == list(range(len(seen))), "each event once"
        assert [event["id"] for event in seen] == [str(event["seq"]) for event in seen]
        # the browser connects once more, gets 204, and stops
        await page.wait_for_function(_CLOSED)


async def test_a_page_of_another_origin_can_read_nothing(
    streaming_deployment: Deployment, start_gateway: StartGateway, browsing: Browsing
) -> None:
    async with asyncio.timeout(SECONDS), elsewhere() as origin, browsing("CORS policy", "ERR_FAILED") as page:
        gateway = start_gateway(streaming_deployment, "--open", "--cors-origins", "https://app.example")
        async with http_client(gateway) as http:
            job_id = (await http.post("/v1/jobs", json={"skill": "query", "question": "tell 3"})).json()["id"]
        await page.goto(origin)
        await page.evaluate(_LISTEN, f"{gateway.address}/v1/jobs/{job_id}/events")
        await page.wait_for_function(_CLOSED)
        assert await page.evaluate("seen") == []
