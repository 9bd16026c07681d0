"""The programs that the playground's snippets are for run them."""

import ast
import asyncio
import json
import shlex
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.examples.conftest import Deployment
from tests.gateway.conftest import SECONDS, GatewayProcess
from tests.gateway.pages.conftest import Browsing

expect = pytest.importorskip("playwright.async_api").expect
expect.set_options(timeout=20_000)

ODD = """it's "odd": $HOME `id` \\n {braces} ünï"""


async def run(deployment: Deployment, *command: str, folder: Path | None = None) -> str:
    """Run a program in a folder as a user of this gateway; return its output."""
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=folder,
        env={**deployment.variables, "STOOP_API_KEY": "any", "NO_PROXY": "*"},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    output, errors = await process.communicate()
    assert process.returncode == 0, errors.decode()
    return output.decode()


async def copied(page: Any, name: str) -> str:
    await page.evaluate("navigator.clipboard.writeText('')")
    await page.get_by_role("button", name=f"Copy as {name}").click()
    while not (text := await page.evaluate("navigator.clipboard.readText()")):
        await asyncio.sleep(0.02)
    return str(text)


async def test_the_copied_snippets_run(
    streaming_deployment: Deployment, streaming_gateway: GatewayProcess, browsing: Browsing
) -> None:
    permissions = ["clipboard-read", "clipboard-write"]
    async with asyncio.timeout(SECONDS), browsing(permissions=permissions) as page:
        await page.goto(streaming_gateway.address)
        await page.get_by_label("Question").fill(ODD)
        await page.get_by_role("button", name="Ask").click()
        await expect(page.locator("#answer")).to_have_text(ODD)
        curl = await copied(page, "curl")
        assert json.loads(shlex.split(curl)[-1]) == {"question": ODD}
        if shutil.which("curl"):
            assert json.loads(await run(streaming_deployment, "bash", "-c", curl))["answer"] == ODD
        by_stoop = await run(streaming_deployment, sys.executable, "-c", await copied(page, "Python"))
        assert ast.literal_eval(by_stoop) == {"answer": ODD}
        by_openai = await run(streaming_deployment, sys.executable, "-c", await copied(page, "OpenAI"))
        assert by_openai.removesuffix("\n") == ODD
        program, command, stream, _, field, job = shlex.split(await copied(page, "redis-cli"))
        assert (program, command, stream, field) == ("redis-cli", "XADD", "stoop:{0}:jobs:interactive", "j")
        assert json.loads(job) == {"v": 1, "skill": "query", "question": ODD}
