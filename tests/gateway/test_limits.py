"""The limits of API keys, shared by all gateways of one Redis."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from stoop.cli.app import app
from stoop.redis.limiter import Limits, Rate, RedisLimiter
from tests.examples.conftest import Deployment
from tests.gateway.conftest import SECONDS, StartGateway, http_client, running_jobs


def new_key(file: Path, name: str, *limits: str) -> str:
    result = CliRunner().invoke(app, ["keys", "new", name, "--file", str(file), "--tenant", name, *limits])
    assert result.exit_code == 0, result.output
    return result.output.strip()


async def test_a_rate_is_shared_by_all_gateways_and_reports_the_remainder(
    streaming_deployment: Deployment, start_gateway: StartGateway, tmp_path: Path
) -> None:
    file = tmp_path / "keys.json"
    secret = new_key(file, tmp_path.name, "--requests-per-minute", "3")
    one, other = (start_gateway(streaming_deployment, "--keys", str(file)) for _ in range(2))
    async with asyncio.timeout(SECONDS), http_client(one, secret) as here, http_client(other, secret) as there:
        for left, http in zip((2, 1, 0), (here, there, here), strict=True):
            response = await http.get("/v1/models")
            assert response.status_code == 200
            assert response.headers["x-ratelimit-limit-requests"] == "3"
            assert response.headers["x-ratelimit-remaining-requests"] == str(left)
            assert response.headers["x-ratelimit-reset-requests"].endswith("s")
        refused = await there.get("/v1/models")
        assert (refused.status_code, refused.json()["error"]["code"]) == (429, "rate_limit_exceeded")
        assert 1 <= int(refused.headers["retry-after"]) <= 20 and float(refused.headers["retry-after-ms"]) > 0
        assert (await there.get("/healthz")).status_code == 200, "public routes have no limit"


async def test_requests_in_progress_are_bounded_and_come_back(
    streaming_deployment: Deployment, start_gateway: StartGateway, gate: Path, tmp_path: Path
) -> None:
    file = tmp_path / "keys.json"
    secret = new_key(file, tmp_path.name, "--concurrent", "1")
    gateway = start_gateway(streaming_deployment, "--keys", str(file))
    async with asyncio.timeout(SECONDS), http_client(gateway, secret) as http:
        waiting = asyncio.create_task(http.post("/v1/query", json={"question": f"tell 2 until {gate}"}))
        while not await running_jobs(streaming_deployment):
            await asyncio.sleep(0.02)
        assert (await http.get("/v1/models")).status_code == 429
        gate.touch()
        assert (await waiting).status_code == 200
        while (await http.get("/v1/models")).status_code == 429:
            await asyncio.sleep(0.02)


async def test_tokens_are_counted_when_they_are_known(
    streaming_deployment: Deployment, start_gateway: StartGateway, tmp_path: Path
) -> None:
    file = tmp_path / "keys.json"
    secret = new_key(file, tmp_path.name, "--tokens-per-minute", "2")
    gateway = start_gateway(streaming_deployment, "--keys", str(file))
    async with asyncio.timeout(SECONDS), http_client(gateway, secret) as http:
        response = await http.post("/v1/query", json={"question": "tell 2"})
        assert (response.status_code, response.headers["x-ratelimit-remaining-tokens"]) == (200, "2")
        while (response := await http.get("/v1/models")).status_code != 429:
            await asyncio.sleep(0.02)
        assert response.headers["x-ratelimit-remaining-tokens"] == "0"


@pytest.mark.parametrize(
    ("limits", "taken"),
    [
        (Limits("a", requests=Rate(5)), 5),
        (Limits("b", concurrent=4), 4),
        (Limits("c", requests=Rate(7), tokens=Rate(100), concurrent=3), 3),
    ],
    ids=["rate", "concurrent", "all"],
)
async def test_concurrent_requests_take_exactly_the_limit(redis_url: str, limits: Any, taken: int) -> None:
    limiters = [RedisLimiter(redis_url) for _ in range(2)]
    names = [f"{i}" for i in range(40)]
    verdicts = await asyncio.gather(*(limiters[i % 2].take(limits, name) for i, name in enumerate(names)))
    allowed = [name for name, one in zip(names, verdicts, strict=True) if one.wait == 0]
    assert len(allowed) == taken
    if limits.concurrent:
        await limiters[0].end(limits, allowed[0], 0)
        assert (await limiters[1].take(limits, "next")).wait == 0
        assert (await limiters[1].take(limits, "last")).wait > 0
    for limiter in limiters:
        await limiter.close()
