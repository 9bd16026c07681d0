"""The gateways that the clients call: `stoop up`, and those of models of texts, of recordings, and of slow answers."""

import os
import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from stoop.config import ProducerConfig
from stoop.demo.child_server import ChildServer
from stoop.demo.pictures import draw_pictures
from tests.audio.sounds import encoded, tone
from tests.examples.conftest import ROOT, Deployment, demo_deployment, gate, streaming_deployment
from tests.gateway.conftest import (
    GatewayProcess,
    StartGateway,
    killable_worker,
    speech_gateway,
    start_gateway,
    streaming_gateway,
)
from tests.gateway.test_texts import texts

__all__ = [
    "StartGateway",
    "demo_deployment",
    "environment",
    "gate",
    "killable_worker",
    "places",
    "speech_gateway",
    "start_gateway",
    "streaming_deployment",
    "streaming_gateway",
    "texts",
    "up",
]

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip the tests of this folder unless `make clients` asks for them: installing takes minutes and a gigabyte."""
    if "STOOP_CLIENTS" in os.environ:
        return
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.skip(reason="run by make clients"))


@pytest.fixture(scope="session")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of everything that `stoop up` starts."""
    folder = tmp_path_factory.mktemp("up")
    log = folder / "up.log"
    server = ChildServer(
        name="stoop up",
        command=[sys.executable, "-m", "stoop", "up", "--port", "0", "--folder", str(folder / "kept")],
        log=log,
        environment={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        answers=lambda pid: "Ctrl-C ends everything" in log.read_text(),
        start_seconds=120,
    )
    server.start()
    found = re.search(r"Open (http://\S+) in", log.read_text())
    assert found is not None
    yield found[1]
    server.end(signal.SIGTERM)


@pytest.fixture(scope="session")
def environment() -> Path:
    """The folder that keeps the environments from one run to the next."""
    return Path(os.environ.get("STOOP_CLIENTS_FOLDER") or ROOT / ".clients")


@pytest.fixture
def places(
    up: str,
    streaming_gateway: GatewayProcess,
    texts: tuple[GatewayProcess, ProducerConfig],
    speech_gateway: tuple[Deployment, GatewayProcess],
    gate: Path,
    tmp_path: Path,
) -> dict[str, str]:
    """The variables by which a program finds all of this."""
    [picture] = draw_pictures(1, seed=1)
    file = tmp_path / "picture.png"
    file.write_bytes(picture.encoded)
    recording = tmp_path / "recording.flac"
    recording.write_bytes(encoded(np.concatenate((tone(30.0), tone(12.0, 3000.0))), "flac", "flac"))
    return {
        "STOOP_UP": up,
        "STOOP_STREAMING": streaming_gateway.address,
        "STOOP_TEXTS": texts[0].address,
        "STOOP_SPEECH": speech_gateway[1].address,
        "STOOP_RECORDING": str(recording),
        "STOOP_GATE": str(gate),
        "STOOP_PICTURE": str(file),
        "STOOP_SHAPES": str(len(picture.shapes)),
        "STOOP_SHAPE": picture.shapes[0].name,
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    }
