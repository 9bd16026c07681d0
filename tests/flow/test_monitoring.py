"""A real Prometheus scrapes a real worker and exporter: nothing on the board is empty, every rule is evaluated."""

import asyncio
import contextlib
import json
import math
import os
import re
import shutil
import subprocess
import sys
import time
import urllib.parse
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from redis.asyncio import Redis

from stoop import AsyncClient, JobFailed
from stoop.exporter.options import ExporterOptions
from stoop.exporter.server import exporting
from stoop.operator.redis_operator import RedisOperator
from tests.deploy.test_monitoring import FOLDER, SHOWN, in_prometheus
from tests.flow.conftest import Service
from tests.support.servers import free_port
from tests.worker.test_endpoints import get

PROMETHEUS = shutil.which("prometheus")
SECONDS = 120.0

pytestmark = pytest.mark.skipif(PROMETHEUS is None, reason="no prometheus on this machine")


@pytest.fixture
async def prometheus(service: Service, tmp_path: Path) -> AsyncIterator[str]:
    """The address of a Prometheus that scrapes the service every second."""
    port = free_port()
    with (
        exporting(service.config, ExporterOptions(port=0, tenants=5)) as exporter,
        serving_gateway(service, tmp_path) as gateway,
    ):
        targets = [exporter.removeprefix("http://"), gateway, f"127.0.0.1:{service.metrics_port}"]
        config = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": [str(FOLDER / "alerts.yml")],
            "scrape_configs": [{"job_name": "stoop", "static_configs": [{"targets": targets}]}],
        }
        (tmp_path / "prometheus.yml").write_text(yaml.safe_dump(config))
        command = [str(PROMETHEUS), f"--web.listen-address=127.0.0.1:{port}", "--config.file=prometheus.yml"]
        log = (tmp_path / "prometheus.log").open("w")
        with log, subprocess.Popen([*command, "--storage.tsdb.path=data"], cwd=tmp_path, stderr=log) as process:
            try:
                yield f"http://127.0.0.1:{port}"
            finally:
                process.kill()


@contextlib.contextmanager
def serving_gateway(service: Service, folder: Path) -> Iterator[str]:
    """Run a gateway, and yield its host and port."""
    log = folder / "gateway.log"
    command = [sys.executable, "-m", "stoop", "serve", "--port", "0", "--open"]
    environment = {**os.environ, "STOOP_REDIS_URL": service.redis_url}
    with log.open("w") as errors, subprocess.Popen(command, env=environment, stderr=errors) as process:
        try:
            while not (found := re.search(r"listens on http://(\S+)", log.read_text())):
                assert process.poll() is None, log.read_text()
                time.sleep(0.05)
            yield found[1]
        finally:
            process.kill()


@pytest.fixture
async def full_queue(service: Service) -> AsyncIterator[None]:
    """A limit of Redis's memory, and a lane that is paused, so that a tenant's job waits there."""
    operator = RedisOperator(service.redis_url)
    async with Redis.from_url(service.redis_url) as redis:
        await redis.config_set("maxmemory", "1gb")
        await operator.pause("bulk")
        yield
        await operator.resume("bulk")
        await redis.config_set("maxmemory", "0")
    await operator.close()


async def ask(prometheus: str, path: str) -> Any:
    """Return the data of one answer of Prometheus's API; None while it starts."""
    try:
        status, body = await asyncio.to_thread(get, f"{prometheus}/api/v1/{path}")
    except OSError:
        return None
    return json.loads(body)["data"] if status == 200 else None


async def is_empty(prometheus: str, expression: str) -> bool:
    found = await ask(prometheus, "query?" + urllib.parse.urlencode({"query": in_prometheus(expression)}))
    return not any(math.isfinite(float(series["value"][1])) for series in (found or {"result": []})["result"])


async def work(client: AsyncClient, service: Service) -> None:
    """Run a job that is answered and one that fails."""
    await client.caption(service.image)
    with pytest.raises(JobFailed):
        await client.query(f"s3://{service.s3.bucket}/there-is-no-such-image.png", "What?")


async def test_nothing_on_the_board_is_empty_and_every_rule_is_evaluated(
    service: Service, client: AsyncClient, prometheus: str, full_queue: None
) -> None:
    waiting = await client.submit(await client.prepare("query", question="x", lane="bulk", tenant="acme"))
    left = dict(SHOWN)
    try:
        async with asyncio.timeout(SECONDS):
            while left:
                await work(client, service)
                left = {name: shown for name, shown in left.items() if await is_empty(prometheus, shown)}
            rules: dict[str, Any] = {}
            while not rules or "unknown" in rules.values():
                groups = (await ask(prometheus, "rules"))["groups"]
                rules = {rule["name"]: rule["health"] for group in groups for rule in group["rules"]}
    except TimeoutError:
        pytest.fail(f"still empty: {sorted(left)}")
    finally:
        await client.cancel(waiting)
    assert set(rules.values()) == {"ok"}, rules
