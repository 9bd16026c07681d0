"""Bounds on bodies, other origins, and the contents that the log must never hold."""

import asyncio
import json
import os
import random
import string
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from typer.testing import CliRunner

from stoop.cli.app import app
from stoop.gateway.routes import ROUTES
from tests.examples.conftest import Deployment
from tests.gateway.conftest import SECONDS, GatewayProcess, StartGateway, http_client

JSON = {"content-type": "application/json"}
# `FUZZ_REQUESTS=10000 pytest tests/gateway/test_bounds.py` takes minutes
REQUESTS = int(os.environ.get("FUZZ_REQUESTS", "600"))


async def test_a_body_is_bounded_by_its_length_and_while_it_is_read(
    streaming_deployment: Deployment, start_gateway: StartGateway
) -> None:
    gateway = start_gateway(streaming_deployment, "--open", "--max-json-bytes", "2000", "--max-audio-bytes", "2000")

    async def chunks() -> AsyncIterator[bytes]:
        yield b'{"question": "'
        for _ in range(100):
            yield b"x" * 1000

    async def endless() -> AsyncIterator[bytes]:
        yield b'--b\r\ncontent-disposition: form-data; name="file"; filename="a"\r\n\r\n'
        for _ in range(3000):
            yield b"x" * 1000

    form = {"content-type": "multipart/form-data; boundary=b"}
    async with asyncio.timeout(SECONDS), http_client(gateway) as http:
        for path, content, headers in (
            ("/v1/query", b'{"question": "' + b"x" * 3000 + b'"}', JSON),
            ("/v1/query", chunks(), JSON),
            ("/v1/audio/transcriptions", endless(), form),
        ):
            response = await http.post(path, content=content, headers=headers)
            assert (response.status_code, response.json()["error"]["code"]) == (413, "body_too_large")
        small = await http.post("/v1/query", json={"question": "tell 1"})
        assert small.status_code == 200


async def test_a_picture_is_there_and_bounded(streaming_deployment: Deployment, start_gateway: StartGateway) -> None:
    gateway = start_gateway(streaming_deployment, "--open", "--max-json-bytes", "2000")
    streaming_deployment.s3.client().put_object(
        Bucket=streaming_deployment.s3.bucket, Key="bounds/large.png", Body=bytes(2001)
    )
    async with asyncio.timeout(SECONDS), http_client(gateway) as http:
        for name, status, code in (("large", 413, "image_too_large"), ("absent", 404, "image_not_found")):
            address = f"s3://{streaming_deployment.s3.bucket}/bounds/{name}.png"
            response = await http.get("/v1/images", params={"address": address})
            assert (response.status_code, response.json()["error"]["code"]) == (status, code)


async def test_only_named_origins_may_call(
    streaming_deployment: Deployment, streaming_gateway: GatewayProcess, start_gateway: StartGateway
) -> None:
    gateway = start_gateway(streaming_deployment, "--open", "--cors-origins", "https://app.example")
    ask = {"access-control-request-method": "POST", "access-control-request-headers": "authorization,x-stainless-lang"}
    async with asyncio.timeout(SECONDS), http_client(gateway) as http, http_client(streaming_gateway) as closed:
        for origin, allowed in (("https://app.example", "https://app.example"), ("https://evil.example", None)):
            response = await http.options("/v1/query", headers={"origin": origin, **ask})
            assert response.headers.get("access-control-allow-origin") == allowed
            response = await http.get("/v1/models", headers={"origin": origin})
            assert response.headers.get("access-control-allow-origin") == allowed
        assert "x-request-id" in response.headers["access-control-expose-headers"]
        response = await closed.options("/v1/query", headers={"origin": "https://app.example", **ask})
        assert (response.status_code, "access-control-allow-origin" in response.headers) == (405, False)


@pytest.mark.parametrize(
    "headers, refused",
    [
        ({}, False),
        ({"sec-fetch-site": "same-origin", "origin": "https://stoop.example"}, False),
        ({"origin": "http://{host}"}, False),
        ({"host": "gateway:8000"}, False),
        ({"host": "[::1]:8000"}, False),
        ({"sec-fetch-site": "cross-site", "origin": "https://evil.example"}, True),
        ({"sec-fetch-site": "same-site", "origin": "http://localhost:3000"}, True),
        ({"origin": "https://evil.example"}, True),
        ({"origin": "null"}, True),
        ({"host": "evil.example:8000", "origin": "http://evil.example:8000"}, True),
    ],
)
async def test_a_page_of_another_site_changes_nothing_without_a_key(
    streaming_gateway: GatewayProcess, headers: dict[str, str], refused: bool
) -> None:
    sent = {
        name: value.replace("{host}", urlsplit(streaming_gateway.address).netloc) for name, value in headers.items()
    }
    async with asyncio.timeout(SECONDS), http_client(streaming_gateway) as http:
        response = await http.post("/v1/queue/lanes/bulk/resume", headers=sent)
        assert response.status_code == (403 if refused else 200), response.text
        read = await http.get("/v1/models", headers=sent)
        assert (read.status_code == 403) is ("evil" in sent.get("host", ""))


async def test_no_request_fails_the_gateway_or_writes_content_to_its_log(
    streaming_deployment: Deployment, start_gateway: StartGateway, tmp_path: Path
) -> None:
    """Requests of every route with bodies, queries, paths and headers that hold a mark, some valid and most not."""
    file = tmp_path / "keys.json"
    made = CliRunner().invoke(app, ["keys", "new", "fuzz", "--file", str(file), "--scopes", "jobs,operator"])
    secret = made.output.strip()
    gateway = start_gateway(streaming_deployment, "--keys", str(file), "--hold-seconds", "0")
    chance = random.Random(5)
    mark = "MaRk"

    def value(depth: int = 0) -> Any:
        kinds = [
            lambda: mark + "".join(chance.choices(string.printable, k=8)),
            lambda: chance.choice([None, True, -1, 0, 1 << 70, 1.5, "", "\ud800", "tell 1"]),
        ]
        if depth < 3:
            kinds += [
                lambda: [value(depth + 1) for _ in range(chance.randrange(3))],
                lambda: {name(): value(depth + 1) for _ in range(chance.randrange(3))},
            ]
        return chance.choice(kinds)()

    def name() -> str:
        return chance.choice([mark, "type", "text", "role", "user", "url", "temperature"])

    def body(fields: list[str]) -> dict[str, Any]:
        return {each: value() for each in fields if chance.random() < 0.5} | {"deadline": 1}

    # the stream of the queue's counts ends with its viewer only
    routes = [route for route in ROUTES if route.path != "/v1/queue/events"]

    async def once(http: Any, number: int) -> None:
        route = routes[number % len(routes)]
        fields = list(getattr(route.body, "__struct_fields__", ())) or [mark]
        path = route.path.replace("{id:path}", mark).replace(
            "{id}", chance.choice([mark, "0" * 32 + "-0", "file-" + "0" * 24])
        )
        headers = {
            "authorization": chance.choice([f"Bearer {secret}", f"Bearer {mark}"]),
            **{
                each: f"{mark}\xe9".encode()
                for each in ("idempotency-key", "traceparent", "last-event-id")
                if chance.random() < 0.3
            },
        }
        asked: dict[str, Any] = {"content": json.dumps(body(fields)).encode(), "headers": JSON}
        if number % 7 == 0:
            asked = {"content": mark.encode() + bytes(chance.choices(range(256), k=20)), "headers": JSON}
        asked["headers"] = {**asked.get("headers", {}), **headers}
        response = await http.request(route.method, path, params={mark: mark}, **asked)
        assert response.status_code != 500, (route.path, asked, response.text)

    async with asyncio.timeout(SECONDS * max(1, REQUESTS // 600)), http_client(gateway) as http:
        for start in range(0, REQUESTS, 20):
            await asyncio.gather(*(once(http, start + i) for i in range(20)))
    assert len(gateway.lines) >= REQUESTS
    assert mark not in gateway.log and secret[-20:] not in gateway.log
    assert "unforeseen" not in gateway.log
