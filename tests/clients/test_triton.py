"""A real Triton Inference Server with our model, called by NVIDIA's own client."""

import asyncio
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stoop import AsyncClient
from stoop.config import ProducerConfig
from stoop.demo.child_server import ChildServer
from stoop.demo.embedded import EmbeddedS3, embedded_redis
from stoop.demo.pictures import Picture
from stoop.gateway.kserve.triton_model import TritonModel
from tests.audio.sounds import encoded, tone
from tests.clients.environments import TRITON_CLIENT, TRITON_SERVER, install
from tests.examples.conftest import ROOT, Deployment, new_deployment, streaming_worker
from tests.gateway.conftest import GatewayProcess, running_jobs
from tests.gateway.test_texts import TEXTS
from tests.support.triton_server import TritonServer, missing_library, running_triton

SECONDS = 200.0

StartTriton = Callable[[Deployment], TritonServer]
Call = Callable[..., str]

pytestmark = [
    pytest.mark.timeout(900),
    pytest.mark.skipif(missing_library() is not None, reason=str(missing_library())),
]


@dataclass(frozen=True)
class Asked:
    """A request as Triton's inputs, files as their paths, and the same request to our own client."""

    inputs: dict[str, Any]
    fields: dict[str, Any]


@pytest.fixture(scope="session")
def start_triton(environment: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartTriton]:
    """Starts a Triton on a queue, once for each queue."""
    python = Path(install(TRITON_SERVER, environment / "triton-server")[0])
    servers: dict[str, TritonServer] = {}
    with contextlib.ExitStack() as stack:

        def begin(deployment: Deployment) -> TritonServer:
            if deployment.redis_url not in servers:
                folder = tmp_path_factory.mktemp("triton")
                servers[deployment.redis_url] = stack.enter_context(
                    running_triton(folder, python, deployment.variables)
                )
            return servers[deployment.redis_url]

        yield begin


@pytest.fixture
def rows(request: pytest.FixtureRequest, s3: EmbeddedS3, tmp_path: Path) -> Iterator[Deployment]:
    """Give the test its own queue, with a worker that runs the parameter's number of jobs at once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("STOOP_REDIS_URL", raising=False)
        with embedded_redis(tmp_path / "redis") as redis:
            deployment = new_deployment(redis, s3)
            worker = streaming_worker(deployment, tmp_path)
            worker.environment = {**worker.environment, "STOOP_PERMITS": str(request.param)}
            worker.start()
            yield deployment
            worker.end(signal.SIGTERM)


@pytest.fixture
def call(environment: Path, gate: Path) -> Call:
    """Runs checks of the client's program on a server and returns what they print."""

    def call(server: TritonServer, *checks: str, **variables: str) -> str:
        command = install(TRITON_CLIENT, environment / "tritonclient")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("STOOP_", "PYTHON"))}
        addresses = {"KSERVE_GRPC": server.grpc, "KSERVE_HTTP": server.http, "STOOP_GATE": str(gate)}
        done = subprocess.run(
            [*command, *checks], env={**kept, **addresses, **variables}, capture_output=True, text=True, timeout=SECONDS
        )
        assert done.returncode == 0, f"{done.stdout}{done.stderr}{server.log[-3000:]}"
        sys.stdout.write(done.stdout)
        return done.stdout

    return call


def answered(call: Call, server: TritonServer, asked: dict[str, Asked], tmp_path: Path) -> dict[str, Any]:
    """Return the answer of Triton to each request."""
    requests = tmp_path / "requests.json"
    requests.write_text(json.dumps({name: each.inputs for name, each in asked.items()}))
    written = call(server, "answers", KSERVE_REQUESTS=str(requests))
    lines = [line.removeprefix("ANSWER ") for line in written.splitlines() if line.startswith("ANSWER ")]
    return dict(map(json.loads, lines))


async def compare(config: ProducerConfig, asked: dict[str, Asked], found: dict[str, Any]) -> None:
    """Check that the answers are those of our own client."""
    assert found.keys() == asked.keys()
    async with AsyncClient(config) as client:
        for name, each in asked.items():
            wanted = await client.run(**each.fields)
            assert {field: found[name].get(field) for field in wanted} == wanted, name


async def test_the_skills_of_moondream(
    demo_deployment: tuple[Deployment, Picture, str],
    start_triton: StartTriton,
    call: Call,
    tmp_path: Path,
) -> None:
    deployment, picture, address = demo_deployment
    file = tmp_path / "picture.png"
    file.write_bytes(picture.encoded)
    count, shape, eye = "How many shapes are there?", picture.shapes[0].name, [[0.5, 0.25]]
    asked = {
        "query": Asked(
            {"SKILL": "query", "QUESTION": count, "IMAGE": str(file), "TEMPERATURE": 0.0, "MAX_TOKENS": 64},
            {"skill": "query", "image": address, "question": count, "settings": {"temperature": 0, "max_tokens": 64}},
        ),
        "streamed": Asked(
            {"SKILL": "query", "QUESTION": count, "IMAGE": str(file), "STREAM": True},
            {"skill": "query", "image": address, "question": count},
        ),
        "caption": Asked(
            {"SKILL": "caption", "LENGTH": "short", "IMAGE": str(file)},
            {"skill": "caption", "image": address, "length": "short"},
        ),
        "detect": Asked(
            {"SKILL": "detect", "OBJECT": shape, "IMAGE": str(file), "MAX_OBJECTS": 5},
            {"skill": "detect", "image": address, "object": shape, "settings": {"max_objects": 5}},
        ),
        "point": Asked(
            {"SKILL": "point", "OBJECT": shape, "IMAGE": str(file)},
            {"skill": "point", "image": address, "object": shape},
        ),
        "gaze": Asked(
            {"SKILL": "gaze", "SPATIAL_REFS": json.dumps(eye), "IMAGE": str(file)},
            {"skill": "gaze", "image": address, "spatial_refs": [tuple(eye[0])]},
        ),
    }
    found = await asyncio.to_thread(answered, call, start_triton(deployment), asked, tmp_path)
    await compare(deployment.config, asked, found)
    assert found["query"]["answer"] == str(len(picture.shapes))


async def test_the_skills_of_other_models(
    streaming_deployment: Deployment,
    texts: tuple[GatewayProcess, ProducerConfig],
    speech_gateway: tuple[Deployment, GatewayProcess],
    s3: EmbeddedS3,
    start_triton: StartTriton,
    call: Call,
    tmp_path: Path,
) -> None:
    recording = tmp_path / "recording.flac"
    recording.write_bytes(encoded(np.concatenate((tone(30.0), tone(12.0, 3000.0))), "flac", "flac"))
    address = f"s3://{s3.bucket}/triton/recording.flac"
    s3.client().put_object(Bucket=s3.bucket, Key="triton/recording.flac", Body=recording.read_bytes())
    messages = [{"role": "user", "content": "tell 12"}]
    texts_deployment = Deployment(FoundRedis(texts[1].redis_url.get_secret_value()), s3, texts[1])  # type: ignore[arg-type]
    cases = [
        (
            streaming_deployment,
            {
                "chat": Asked(
                    {"SKILL": "chat", "MESSAGES": json.dumps(messages)}, {"skill": "chat", "messages": messages}
                )
            },
        ),
        (
            texts_deployment,
            {
                "embed": Asked(
                    {"SKILL": "embed", "INPUT": TEXTS, "MODEL": "embedder", "DIMENSIONS": 16},
                    {"skill": "embed", "input": TEXTS, "model": "embedder", "dimensions": 16},
                ),
                "rerank": Asked(
                    {"SKILL": "rerank", "QUERY": TEXTS[1], "DOCUMENTS": TEXTS, "MODEL": "ranker"},
                    {"skill": "rerank", "query": TEXTS[1], "documents": TEXTS, "model": "ranker"},
                ),
            },
        ),
        (
            speech_gateway[0],
            {
                skill: Asked(
                    {"SKILL": skill, "AUDIO": str(recording), "MODEL": "speech"},
                    {"skill": skill, "audio": address, "model": "speech"},
                )
                for skill in ("transcribe", "translate")
            },
        ),
    ]
    for deployment, asked in cases:
        found = await asyncio.to_thread(answered, call, start_triton(deployment), asked, tmp_path)
        await compare(deployment.config, asked, found)


@dataclass(frozen=True)
class FoundRedis:
    """A Redis that another fixture started."""

    url: str


@pytest.mark.parametrize("rows", [64], indirect=True)
def test_64_streams_at_once(rows: Deployment, start_triton: StartTriton, call: Call) -> None:
    call(start_triton(rows), "crowd", "streams")


@pytest.mark.parametrize("rows", [1], indirect=True)
async def test_a_caller_that_leaves_frees_its_row(rows: Deployment, start_triton: StartTriton, call: Call) -> None:
    await asyncio.to_thread(call, start_triton(rows), "cancels")
    assert await running_jobs(rows) == []


async def test_it_is_ready_while_a_worker_lives(killable_worker: tuple[Deployment, ChildServer]) -> None:
    """The model by itself: the Triton of the wheel is older than the first release that asks."""
    deployment, worker = killable_worker
    client = deployment.client()
    model = TritonModel(client)
    async with asyncio.timeout(SECONDS), client:
        assert await model.is_ready()
        await asyncio.to_thread(worker.end, signal.SIGTERM)
        while await model.is_ready():
            await asyncio.sleep(0.05)
        await asyncio.to_thread(worker.start)
        while not await model.is_ready():
            await asyncio.sleep(0.05)


def test_errors_have_their_codes_and_the_server_survives_them(
    streaming_deployment: Deployment, start_triton: StartTriton, call: Call
) -> None:
    server = start_triton(streaming_deployment)
    call(server, "errors", "routes", "errors", "routes")
    assert server.child.process is not None and server.child.process.poll() is None


def test_the_examples(
    demo_deployment: tuple[Deployment, Picture, str], start_triton: StartTriton, environment: Path, tmp_path: Path
) -> None:
    deployment, picture, _ = demo_deployment
    server = start_triton(deployment)
    file = tmp_path / "picture.png"
    file.write_bytes(picture.encoded)
    python = install(TRITON_CLIENT, environment / "tritonclient")[0]
    examples = ROOT / "examples" / "triton"
    question, count = "How many shapes are there?", str(len(picture.shapes))
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}

    def run(*command: str) -> "subprocess.CompletedProcess[str]":
        variables = {**kept, "TRITON": server.http}
        return subprocess.run(command, env=variables, capture_output=True, text=True, timeout=SECONDS)

    asked = run(python, str(examples / "ask.py"), question, str(file), "--url", server.grpc)
    assert (asked.returncode, asked.stdout) == (0, f"{count}\n"), asked.stderr
    if shutil.which("curl") is None:
        pytest.skip("no curl on this machine")
    asked = run(str(examples / "ask.sh"), question, str(file))
    *_, last = [json.loads(json.loads(line)["TEXT_OUTPUT"]) for line in asked.stdout.splitlines()]
    assert (asked.returncode, last["answer"], last["completed"]) == (0, count, True)
    refused = run(str(examples / "ask.sh"), "")
    assert refused.returncode == 1
    assert "needs a question" in refused.stdout
