"""The gateways that the clients call: `stoop up`, one with models of texts, and one whose answers take their time."""

import os
import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from stoop.config import ProducerConfig
from stoop.demo.child_server import ChildServer
from stoop.demo.pictures import draw_pictures
from tests.examples.conftest import ROOT, gate, painter, teller
from tests.gateway.conftest import Begin, Serving, begin, telling
from tests.gateway.test_texts import texts

__all__ = ["Begin", "begin", "environment", "gate", "painter", "places", "teller", "telling", "texts", "up"]

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what lies in this folder unless `make clients` asks for it: the environments take minutes and a gigabyte."""
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
    up: str, telling: Serving, texts: tuple[Serving, ProducerConfig], gate: Path, tmp_path: Path
) -> dict[str, str]:
    """The variables by which a program finds all of this."""
    [picture] = draw_pictures(1, seed=1)
    file = tmp_path / "picture.png"
    file.write_bytes(picture.encoded)
    return {
        "STOOP_UP": up,
        "STOOP_TELLING": telling.address,
        "STOOP_TEXTS": texts[0].address,
        "STOOP_GATE": str(gate),
        "STOOP_PICTURE": str(file),
        "STOOP_SHAPES": str(len(picture.shapes)),
        "STOOP_SHAPE": picture.shapes[0].name,
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    }
