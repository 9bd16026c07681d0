"""The programs that ask by gRPC: Triton's client, and curl with protoc."""

import json
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from stoop.demo.pictures import Picture
from tests.examples.conftest import EXAMPLES, Deployment
from tests.examples.streaming_child import words
from tests.gateway.conftest import GatewayProcess, demo_gateway, streaming_gateway
from tests.gateway.grpc.client import grpc_client

__all__ = ["demo_gateway", "streaming_gateway"]

PYTHON = [sys.executable, str(EXAMPLES / "grpc" / "ask.py")]
SHELL = ["bash", str(EXAMPLES / "grpc" / "ask.sh")]


def run(command: list[str], *arguments: str, environment: Mapping[str, str]) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([*command, *arguments], env=environment, capture_output=True, text=True, timeout=60)


def ready(gateway: GatewayProcess) -> str:
    with grpc_client(gateway.grpc):
        return gateway.grpc


@pytest.fixture
def shell(streaming_deployment: Deployment) -> Mapping[str, str]:
    """The variables for the script; skips without a curl that speaks HTTP/2."""
    curl = shutil.which("curl")
    if curl is None or "HTTP2" not in subprocess.run([curl, "--version"], capture_output=True, text=True).stdout:
        pytest.skip("no curl with HTTP/2 on this machine")
    return streaming_deployment.variables | {"PROTOC": f"{sys.executable} -m grpc_tools.protoc"}


def test_the_words_are_printed_as_they_come(
    streaming_gateway: GatewayProcess,
    demo_gateway: GatewayProcess,
    demo_deployment: tuple[Deployment, Picture, str],
    streaming_deployment: Deployment,
    tmp_path: Path,
) -> None:
    done = run(PYTHON, ready(streaming_gateway), "tell 5", environment=streaming_deployment.variables)
    assert done.stdout.startswith("".join(words(5)) + "\nstop, 1 tokens, job "), done.stderr
    file = tmp_path / "shapes.png"
    file.write_bytes(demo_deployment[1].encoded)
    for image in (str(file), demo_deployment[2]):
        done = run(
            PYTHON, ready(demo_gateway), "How many shapes are there?", image, environment=streaming_deployment.variables
        )
        assert done.stdout.startswith(f"{len(demo_deployment[1].shapes)}\nstop"), done.stderr
    done = run(PYTHON, streaming_gateway.grpc, "", environment=streaming_deployment.variables)
    assert done.returncode == 1 and "malformed" in done.stderr


def test_curl_and_protoc_ask_as_well(
    streaming_gateway: GatewayProcess,
    demo_gateway: GatewayProcess,
    demo_deployment: tuple[Deployment, Picture, str],
    shell: Mapping[str, str],
) -> None:
    question = r"""what's "this" \ $(that) `here` 100% größer 犬"""
    done = run(SHELL, ready(streaming_gateway), question, environment=shell)
    assert json.loads(done.stdout)["answer"] == question, done.stderr
    done = run(SHELL, ready(demo_gateway), "How many shapes are there?", demo_deployment[2], environment=shell)
    assert json.loads(done.stdout)["answer"] == str(len(demo_deployment[1].shapes)), done.stderr
    done = run(SHELL, streaming_gateway.grpc, "what?", "no address", environment=shell)
    assert done.returncode == 1 and done.stderr.startswith("status 3: image_undecodable")
    assert run(SHELL, "127.0.0.1:1", "what?", environment=shell).returncode == 3
    assert run(SHELL, environment=shell).returncode == 2
