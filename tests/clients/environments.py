"""The environments of the clients: a Python or a Node.js with one client's packages, installed once."""

import json
import shutil
import subprocess
import sys
import venv
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.triton_server import MODEL_PACKAGES, SERVER_PACKAGE

__all__ = ["CLIENTS", "SCHEMATHESIS", "TRITON_CLIENT", "TRITON_SERVER", "Client", "install"]

PROGRAMS = Path(__file__).parent / "programs"
INSTALL_SECONDS = 580.0


@dataclass(frozen=True)
class Client:
    """A client: the program that uses it, and its packages; those of `alone` come without their requirements."""

    program: str
    packages: tuple[str, ...]
    alone: tuple[str, ...] = ()

    @property
    def is_node(self) -> bool:
        return self.program.endswith(".mjs")


CLIENTS = {
    "openai-node": Client("run_openai.mjs", ("openai@6.49.0",)),
    "ai-sdk": Client("run_ai_sdk.mjs", ("ai@5.0.277", "@ai-sdk/openai-compatible@1.0.61")),
    "litellm": Client("run_litellm.py", ("litellm==1.106.2",)),
    "langchain": Client("run_langchain.py", ("langchain-openai==1.7.3",)),
    "llama-index": Client(
        "run_llama_index.py", ("llama-index-llms-openai-like==0.8.1", "llama-index-embeddings-openai-like==0.4.0")
    ),
    "cohere": Client("run_cohere.py", ("cohere==7.3.1",)),
    # its own requirements are an engine that these tests do without
    "moondream": Client("run_moondream.py", ("pillow==13.0.0",), alone=("moondream==2.6.1",)),
}

SCHEMATHESIS = Client("run_schemathesis.py", ("schemathesis==4.32.5",))

TRITON_CLIENT = Client("run_tritonclient.py", ("tritonclient[grpc]==2.73.0",))
TRITON_SERVER = Client("run_tritonclient.py", MODEL_PACKAGES, alone=(SERVER_PACKAGE,))


def install(client: Client, folder: Path) -> list[str]:
    """Install the client's packages in the folder, unless they are there; return the command that runs its program.

    Skips the test if this machine has no Node.js, or the packages cannot be downloaded.
    """
    wanted = json.dumps([client.packages, client.alone])
    marker = folder / "installed.json"
    if not marker.is_file() or marker.read_text() != wanted:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        (_install_node if client.is_node else _install_python)(client, folder)
        marker.write_text(wanted)
    shutil.copytree(PROGRAMS, folder / "programs", dirs_exist_ok=True)
    program = str(folder / "programs" / client.program)
    return ["node", program] if client.is_node else [str(folder / "bin" / "python"), "-W", "ignore", program]


def _install_node(client: Client, folder: Path) -> None:
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        pytest.skip("no Node.js on this machine: install node and npm")
    (folder / "package.json").write_text('{"private": true}')
    _run([npm, "install", "--no-audit", "--no-fund", *client.packages], folder)


def _install_python(client: Client, folder: Path) -> None:
    venv.create(folder, with_pip=True)
    pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    _run([*pip, *client.packages], folder)
    if client.alone:
        _run([*pip, "--no-deps", *client.alone], folder)


def _run(command: list[str], folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=INSTALL_SECONDS)
    if done.returncode != 0:
        print(done.stdout, done.stderr, file=sys.stderr)
        pytest.skip(f"cannot install {' '.join(command[-2:])}: {done.stderr.strip()[-300:]}")
