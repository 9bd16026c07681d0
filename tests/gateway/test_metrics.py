"""The metrics of HTTP, and the effect of requests on them."""

import asyncio
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families
from typer.testing import CliRunner

from stoop.cli.app import app
from tests.examples.conftest import Deployment
from tests.gateway.conftest import SECONDS, StartGateway, events_of, http_client


async def test_requests_streams_and_refusals_are_counted(
    streaming_deployment: Deployment, start_gateway: StartGateway, gate: Path, tmp_path: Path
) -> None:
    file = tmp_path / "keys.json"
    secret, limited, meter = (
        CliRunner().invoke(app, ["keys", "new", name, "--file", str(file), *options]).output.strip()
        for name, *options in (("ann",), ("bob", "--requests-per-minute", "1"), ("meter", "--scopes", "metrics"))
    )
    gateway = start_gateway(streaming_deployment, "--keys", str(file))
    async with asyncio.timeout(SECONDS), http_client(gateway, secret) as http, http_client(gateway, meter) as scraper:

        async def scraped() -> dict[tuple[str, ...], float]:
            response = await scraper.get("/metrics")
            assert response.headers["content-type"].startswith("text/plain; version=")
            families = text_string_to_metric_families(response.text)
            samples = [sample for family in families for sample in family.samples]
            return {(each.name, *each.labels.values()): each.value for each in samples}

        assert (await http.get("/metrics")).status_code == 403
        asked: dict[str, Any] = {"question": f"tell 4 until {gate}", "stream": True}
        async with http.stream("POST", "/v1/query", json=asked) as response:
            events = events_of(response)
            assert (await anext(events))["data"]["chunk"]
            found = await scraped()
            assert found["stoop_http_streams",] == 1
            assert found["stoop_http_first_byte_seconds_count", "/v1/query"] == 1
            gate.touch()
            async for _ in events:
                pass
        assert (await http.get("/v1/jobs/secret-path")).status_code == 404
        for status in (200, 429):
            models = await http.get("/v1/models", headers={"authorization": f"Bearer {limited}"})
            assert models.status_code == status
        assert (await http.get("/no/such/secret")).status_code == 404
        while (found := await scraped()).get(("stoop_http_requests_total", "/v1/query", "200")) != 1:
            await asyncio.sleep(0.02)
        assert found["stoop_http_streams",] == 0
        assert found["stoop_http_requests_total", "/v1/jobs/{id}", "404"] == 1
        assert found["stoop_http_requests_total", "unknown", "404"] == 1
        assert found["stoop_http_request_seconds_count", "/v1/models"] == 2
        assert found["stoop_http_limited_total", "rate_limit_exceeded"] == 1
        assert not [labels for labels in found if "secret" in str(labels)]
