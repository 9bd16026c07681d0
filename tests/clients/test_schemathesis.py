"""The OpenAPI document, checked by a program that tries everything it describes."""

import asyncio
import os
import sys
from pathlib import Path

import pytest

from tests.clients.environments import SCHEMATHESIS, install
from tests.examples.conftest import Town
from tests.gateway.conftest import Begin

SECONDS = 300.0


@pytest.mark.timeout(900)
async def test_every_route_keeps_its_schema(teller: Town, begin: Begin, environment: Path, tmp_path: Path) -> None:
    command = await asyncio.to_thread(install, SCHEMATHESIS, environment / "schemathesis")
    serving = begin(teller, "--open", "--hold-seconds", "0.5")
    variables = {each: value for each, value in os.environ.items() if not each.startswith(("STOOP_", "PYTHON"))}
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=tmp_path,
        env={**variables, "STOOP_TELLING": serving.address},
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
    assert "unforeseen" not in serving.log
    sys.stdout.write(written.decode()[-600:])
