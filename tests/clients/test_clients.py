"""Each client asks for answers, streams and errors, and leaves in the middle, which must cancel its job."""

import asyncio
import os
import sys
from pathlib import Path

import pytest

from tests.clients.environments import CLIENTS, install
from tests.examples.conftest import Deployment
from tests.gateway.conftest import running_jobs

SECONDS = 120.0


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", CLIENTS)
async def test_a_client_is_served(
    name: str, environment: Path, places: dict[str, str], streaming_deployment: Deployment
) -> None:
    command = await asyncio.to_thread(install, CLIENTS[name], environment / name)
    variables = {each: value for each, value in os.environ.items() if not each.startswith(("STOOP_", "PYTHON"))}
    async with asyncio.timeout(SECONDS):
        process = await asyncio.create_subprocess_exec(
            *command,
            env={**variables, **places},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        try:
            written, _ = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        assert process.returncode == 0, written.decode()
        sys.stdout.write(written.decode())
        # the jobs wait for a gate that stays shut: only a cancel ends them
        while await running_jobs(streaming_deployment):
            await asyncio.sleep(0.05)
