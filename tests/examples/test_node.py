"""The consumer in Node.js, with the ordinary redis client for it."""

import asyncio
import contextlib
import json
import shutil
import signal
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis

from stoop_schemas import names
from tests.examples.conftest import EXAMPLES, Deployment
from tests.examples.streaming_child import words

SECONDS = 60.0


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example with its one package installed."""
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        pytest.skip("no Node.js on this machine")
    folder = tmp_path_factory.mktemp("node") / "example"
    shutil.copytree(EXAMPLES / "node", folder)
    if not (folder / "node_modules" / "redis").is_dir():
        install = [npm, "install", "--no-audit", "--no-fund", "--prefer-offline", "--fetch-retries", "0"]
        try:
            subprocess.run(install, cwd=folder, check=True, capture_output=True, timeout=60)
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired):
            pytest.skip("npm cannot install the package redis here")
    return folder


@contextlib.asynccontextmanager
async def consumer(folder: Path, deployment: Deployment, *arguments: str) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        *("node", "words.mjs", *arguments),
        cwd=folder,
        env=deployment.variables,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(SECONDS):
            yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()


async def read(process: asyncio.subprocess.Process, text: str) -> None:
    """Read the program's output, which must be this text."""
    assert process.stdout is not None
    assert (await process.stdout.readexactly(len(text))).decode() == text


async def submit(deployment: Deployment, question: str, **fields: object) -> str:
    async with deployment.client() as client:
        return await client.submit(await client.prepare("query", question=question, stream=True, **fields))  # type: ignore[arg-type]


async def test_words_come_while_the_job_runs_and_the_log_has_the_last_word(
    folder: Path, streaming_deployment: Deployment, gate: Path
) -> None:
    job_id = await submit(streaming_deployment, f"tell 40 until {gate}")
    pieces = words(40)
    async with (
        consumer(folder, streaming_deployment, job_id) as process,
        Redis.from_url(streaming_deployment.redis_url, protocol=2) as redis,
    ):
        await read(process, "".join(pieces[:20]))
        logged: Any = await redis.xrange(names.log(job_id))
        for _, fields in logged:
            await redis.publish(names.events(job_id), fields[b"e"])
        ahead = {**json.loads(fields[b"e"]), "seq": 999, "text": "what the log does not have"}
        await redis.publish(names.events(job_id), json.dumps(ahead))
        gate.touch()
        await read(process, "".join(pieces[20:]) + "\n")
        assert await process.wait() == 0


async def test_a_reader_cut_off_while_the_job_ends_loses_no_word(
    folder: Path, streaming_deployment: Deployment, gate: Path
) -> None:
    job_id = await submit(streaming_deployment, f"tell 40 until {gate}")
    pieces = words(40)
    async with (
        consumer(folder, streaming_deployment, job_id) as process,
        Redis.from_url(streaming_deployment.redis_url, protocol=2) as redis,
    ):
        await read(process, "".join(pieces[:20]))
        process.send_signal(signal.SIGSTOP)  # it cannot come back before the job has ended
        clients: Any = await redis.client_list()
        for client in clients:
            if client["cmd"] in ("subscribe", "xrange", "get"):
                await redis.client_kill_filter(_id=client["id"])
        gate.touch()
        async with streaming_deployment.client() as client:
            await client.result(job_id)
        process.send_signal(signal.SIGCONT)
        await read(process, "".join(pieces[20:]) + "\n")
        assert await process.wait() == 0


async def test_it_continues_after_the_last_seen_event(folder: Path, streaming_deployment: Deployment) -> None:
    job_id = await submit(streaming_deployment, "tell 6")
    async with streaming_deployment.client() as client:
        events = [event async for event in client.stream(job_id)]
    texts = [getattr(event, "text", "") for event in events]
    async with consumer(folder, streaming_deployment, job_id, "2") as process:
        await read(process, "".join(texts[3:]) + "\n")
        assert await process.wait() == 0


async def test_a_job_whose_log_has_gone_still_has_an_end(folder: Path, streaming_deployment: Deployment) -> None:
    job_id = await submit(streaming_deployment, "gone")
    async with (
        streaming_deployment.client() as client,
        Redis.from_url(streaming_deployment.redis_url, protocol=2) as redis,
    ):
        await client.result(job_id)
        await redis.delete(names.log(job_id))
    async with consumer(folder, streaming_deployment, job_id) as process:
        await read(process, "\n")
        assert await process.wait() == 0


@pytest.mark.parametrize("log_has_gone", [False, True])
async def test_nothing_comes_after_the_end(folder: Path, streaming_deployment: Deployment, log_has_gone: bool) -> None:
    job_id = await submit(streaming_deployment, "tell 3")
    async with (
        streaming_deployment.client() as client,
        Redis.from_url(streaming_deployment.redis_url, protocol=2) as redis,
    ):
        *_, last = [event async for event in client.stream(job_id)]
        if log_has_gone:
            await redis.delete(names.log(job_id))
    async with consumer(folder, streaming_deployment, job_id, str(last.seq)) as process:
        out, errors = await process.communicate()
    assert (process.returncode, out, errors) == (0, b"", b"")


async def test_a_failure_is_reported(folder: Path, streaming_deployment: Deployment) -> None:
    job_id = await submit(streaming_deployment, "what?", image="s3://nowhere/a.png")
    async with consumer(folder, streaming_deployment, job_id) as process:
        out, errors = await process.communicate()
    assert (process.returncode, out) == (1, b"")
    assert errors.startswith(b"image_")
