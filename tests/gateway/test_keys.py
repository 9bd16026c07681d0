"""Keys: every route without one, what each may do, and their file while a gateway runs."""

import asyncio
import json
from pathlib import Path

import pytest
from openapi_spec_validator import validate
from typer.testing import CliRunner

from stoop.cli.app import app
from stoop.gateway.openapi import document
from stoop.gateway.routes import ROUTES
from tests.examples.conftest import Deployment
from tests.gateway.conftest import SECONDS, GatewayProcess, StartGateway, http_client

PUBLIC = {"/healthz", "/readyz", "/openapi.json", "/docs", "/", "/dashboard", "/pages/{name}"}


def keys(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["keys", *arguments])
    assert result.exit_code == 0, result.output
    return result.output.strip()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "keys.json"


async def test_only_the_public_routes_answer_without_a_key(
    streaming_deployment: Deployment, start_gateway: StartGateway, file: Path
) -> None:
    secret = keys("new", "ann", "--file", str(file))
    gateway = start_gateway(streaming_deployment, "--keys", str(file))
    async with asyncio.timeout(SECONDS), http_client(gateway) as http:
        for route in ROUTES:
            path = route.path.replace("{id}", "1").replace("{id:path}", "1").replace("{name}", "style.css")
            for headers in (
                {},
                {"x-moondream-auth": ""},
                {"authorization": f"Bearer {secret}x"},
                {"authorization": "Bearer"},
            ):
                response = await http.request(route.method, path, headers=headers, json={})
                if route.path in PUBLIC:
                    assert response.status_code == 200 and route.scope is None
                else:
                    assert response.status_code == 401, (route, response.text)
                    assert response.json()["error"]["code"] == "invalid_api_key"
                    assert response.headers["www-authenticate"] == "Bearer"
    assert {route.path for route in ROUTES if route.scope is None} == PUBLIC
    assert secret not in gateway.log and secret not in file.read_text()
    assert file.stat().st_mode & 0o077 == 0


async def test_a_key_opens_its_own_tenants_jobs_lanes_and_models(
    streaming_deployment: Deployment, start_gateway: StartGateway, file: Path
) -> None:
    path = ("--file", str(file))
    ann = keys("new", "ann", "--tenant", "a", "--lanes", "bulk,interactive", *path)
    bob = keys("new", "bob", "--tenant", "b", "--models", "other", *path)
    boss = keys("new", "boss", "--scopes", "jobs,operator", *path)
    meter = keys("new", "meter", "--scopes", "metrics", *path)
    gateway = start_gateway(streaming_deployment, "--keys", str(file))
    async with asyncio.timeout(SECONDS), http_client(gateway, ann) as http:
        response = await http.post("/v1/query", json={"question": "tell 3"})
        assert response.headers["x-stoop-lane"] == "bulk", "the first of the key's lanes"
        job = f"/v1/jobs/{response.headers['x-stoop-job-id']}"
        assert (await http.get(job)).json()["status"] == "completed"
        response = await http.post("/v1/query", json={"question": "tell 3", "lane": "secret"})
        assert (response.status_code, response.json()["error"]["code"]) == (403, "lane_forbidden")
        for secret, status in ((bob, 404), (boss, 200), (meter, 403)):
            other = {"authorization": f"Bearer {secret}"}
            for method, route in (("GET", job), ("GET", f"{job}/events"), ("DELETE", job)):
                assert (await http.request(method, route, headers=other)).status_code == status
        response = await http.post(
            "/v1/query", json={"question": "tell 3"}, headers={"x-moondream-auth": bob, "authorization": ""}
        )
        assert (response.status_code, response.json()["error"]["code"]) == (403, "model_forbidden")
        [model] = (await http.get("/v1/models")).json()["data"]
        for secret, status in ((ann, 200), (bob, 403)):
            headers = {"authorization": f"Bearer {secret}"}
            assert (await http.get(f"/v1/models/{model['id']}", headers=headers)).status_code == status


async def test_a_change_of_the_file_is_followed(
    streaming_deployment: Deployment, start_gateway: StartGateway, file: Path
) -> None:
    first = keys("new", "first", "--file", str(file))
    gateway = start_gateway(streaming_deployment, "--keys", str(file))
    async with asyncio.timeout(SECONDS), http_client(gateway) as http:

        async def status(secret: str) -> int:
            response = await http.get("/v1/models", headers={"authorization": f"Bearer {secret}"})
            return int(response.status_code)

        async def becomes(secret: str, wanted: int) -> None:
            while await status(secret) != wanted:
                await asyncio.sleep(0.05)

        assert await status(first) == 200
        second = keys("new", "second", "--file", str(file))
        await becomes(second, 200)
        good = file.read_text()
        file.write_text("{ torn")
        while "the keys stay as they were" not in gateway.log:
            assert await status(first) == 200
            await asyncio.sleep(0.05)
        file.write_text(good)
        keys("revoke", "first", "--file", str(file))
        await becomes(first, 401)
        assert await status(second) == 200
        changed = json.loads(file.read_text())
        changed["keys"]["second"]["expires"] = "2020-01-01T00:00:00Z"
        file.write_text(json.dumps(changed))
        await becomes(second, 401)
    assert '"expired":true' in keys("list", "--file", str(file))


def test_a_gateway_without_keys_starts_only_with_open(file: Path) -> None:
    for arguments, expected in (
        ([], "--open"),
        (["--keys", str(file)], "stoop keys new"),
        (["--keys", str(file), "--open"], "exclude each other"),
    ):
        result = CliRunner().invoke(app, ["serve", *arguments])
        assert result.exit_code == 2 and expected in result.output


def test_wrong_commands_are_refused(file: Path) -> None:
    keys("new", "ann", "--file", str(file))
    for arguments, code in (
        (["new", "ann"], 2),
        (["new", "a b"], 2),
        (["revoke", "bob"], 1),
        (["new", "c", "--scopes", "all"], 2),
    ):
        assert CliRunner().invoke(app, ["keys", *arguments, "--file", str(file)]).exit_code == code


async def test_the_document_is_openapi_and_the_page_loads_nothing(streaming_gateway: GatewayProcess) -> None:
    validate(document(ROUTES))
    async with asyncio.timeout(SECONDS), http_client(streaming_gateway) as http:
        openapi = (await http.get("/openapi.json")).json()
        assert {f"{route.method} {route.path.replace(':path', '')}" for route in ROUTES} == {
            f"{method.upper()} {path}" for path, methods in openapi["paths"].items() for method in methods
        }
        page = await http.get("/docs")
        assert "/v1/query" in page.text and "http" not in page.text.replace("http-equiv", "")
        assert "default-src 'none'" in page.headers["content-security-policy"]
