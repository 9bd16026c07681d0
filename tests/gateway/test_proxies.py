"""Streams behind popular proxies in their default configuration."""

import asyncio
from pathlib import Path

import pytest

from tests.examples.conftest import Town
from tests.examples.telling_child import words
from tests.gateway.conftest import SECONDS, Begin, Serving, asking, events_of
from tests.support.proxies import PROXIES, running_proxy


@pytest.mark.parametrize("name", PROXIES)
async def test_a_proxy_passes_each_event_on_at_once(
    name: str, teller: Town, begin: Begin, gate: Path, tmp_path: Path
) -> None:
    serving = begin(teller, "--open", "--hold-seconds", "0.1", "--ping-seconds", "0.2")
    with running_proxy(name, tmp_path, serving.address) as address:
        async with asyncio.timeout(SECONDS), asking(Serving(address, serving.server)) as http:
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
