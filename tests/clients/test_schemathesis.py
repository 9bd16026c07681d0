"""The OpenAPI document, checked by a program that tries everything it describes."""

import asyncio
import os
import sys
from pathlib import Path

import pytest

from tests.clients.environments import SCHEMATHESIS, install
from tests.examples.conftest import Deployment
from tests.gateway.conftest import StartGateway

SECONDS = 300.0


@pytest.mark.timeout(900)
async def test_every_route_keeps_its_schema(
    streaming_deployment: Deployment, start_gateway: StartGateway, environment: Path, tmp_path: Path
) -> None:
    command = await asyncio.to_thread(install, SCHEMATHESIS, environment / "schemathesis")
    gateway = start_gateway(streaming_deployment, "--open", "--hold-seconds", "0.5")
    variables = {each: value for each, value in os.environ.items() if not each.startswith(("STOOP_", "PYTHON"))}
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=tmp_path,
        env={**variables, "STOOP_STREAMING": gateway.address},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        async with asyncio.timeout(SECONDS):
            written, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 0, written.decode()
    assert "unforeseen" not in gateway.log
    sys.stdout.write(written.decode()[-600:])
