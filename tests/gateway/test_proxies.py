"""Streams behind popular proxies in their default configuration."""

import asyncio
from pathlib import Path

import pytest

from tests.examples.conftest import Deployment
from tests.examples.streaming_child import words
from tests.gateway.conftest import SECONDS, GatewayProcess, StartGateway, events_of, http_client
from tests.support.proxies import PROXIES, running_proxy


@pytest.mark.parametrize("name", PROXIES)
async def test_a_proxy_passes_each_event_on_at_once(
    name: str, streaming_deployment: Deployment, start_gateway: StartGateway, gate: Path, tmp_path: Path
) -> None:
    gateway = start_gateway(streaming_deployment, "--open", "--hold-seconds", "0.1", "--ping-seconds", "0.2")
    with running_proxy(name, tmp_path, gateway.address) as address:
        async with asyncio.timeout(SECONDS), http_client(GatewayProcess(address, gateway.server)) as http:
            asked = {"question": f"tell 4 until {gate}", "stream": True}
            async with http.stream("POST", "/v1/query", json=asked) as response:
                text, comments, completed = "", 0, False
                async for event in events_of(response):
                    text += event.get("data", {}).get("chunk", "")
                    completed = event.get("data", {}).get("completed", completed)
                    comments += "comment" in event
                    # a proxy that keeps events back never lets this come true, so the gate stays shut
                    if text == "".join(words(4)[:2]) and comments >= 3:
                        gate.touch()
            assert (text, completed) == ("".join(words(4)), True)
