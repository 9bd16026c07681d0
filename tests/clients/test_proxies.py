"""Streams that are quiet for longer than proxies wait by default, which is 50 or 60 seconds."""

import asyncio
from pathlib import Path

import pytest

from tests.examples.conftest import Deployment
from tests.examples.streaming_child import words
from tests.gateway.conftest import GatewayProcess, StartGateway, events_of, http_client
from tests.support.proxies import PROXIES, running_proxy

QUIET_SECONDS = 70.0


@pytest.mark.parametrize("name", PROXIES)
async def test_a_quiet_stream_is_not_cut(
    name: str, streaming_deployment: Deployment, start_gateway: StartGateway, gate: Path, tmp_path: Path
) -> None:
    gateway = start_gateway(streaming_deployment, "--open")
    with running_proxy(name, tmp_path, gateway.address) as address:
        async with asyncio.timeout(3 * QUIET_SECONDS), http_client(GatewayProcess(address, gateway.server)) as http:
            asyncio.get_running_loop().call_later(QUIET_SECONDS, gate.touch)
            asked = {"question": f"tell 4 until {gate}", "stream": True}
            async with http.stream("POST", "/v1/query", json=asked) as response:
                events = [event["data"] async for event in events_of(response) if "data" in event]
            assert gate.exists() and events[-1]["completed"]
            assert "".join(event["chunk"] for event in events) == "".join(words(4))
