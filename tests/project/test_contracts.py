"""Each import contract is seen to break: a rule that nothing can break guards nothing."""

import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("schemas", "producer", "worker")

# For each contract: a module of the product, and what it must not say.
PLANTED = [
    ("Producer and worker meet only in schemas", "producer/transport.py", "import worker.errors"),
    ("Producer and worker meet only in schemas", "worker/errors.py", "import producer.errors"),
    ("Schemas stand alone", "schemas/job.py", "import redis"),
    ("Schemas stand alone", "schemas/names.py", "import worker.errors"),
    ("The worker's layers", "worker/kernels/__init__.py", "import worker.model.text"),
    ("The worker's layers", "worker/engine/request.py", "import worker.jobs.outcome"),
    ("The worker's layers", "worker/jobs/outcome.py", "import worker.main"),
    ("The worker's layers", "worker/jobs/outcome.py", "import worker.engine_process.border"),
    ("Celery is imported by what speaks for it alone", "worker/dialect.py", "import celery"),
    ("Celery is imported by what speaks for it alone", "producer/config.py", "from kombu import Connection"),
    ("Jobs know the engine only as engine.request", "worker/jobs/translate.py", "import worker.engine.scheduler"),
    ("Jobs know the engine only as engine.request", "worker/jobs/translate.py", "from worker.model import text"),
    ("Nothing left of the engine imports torch", "worker/images/crops.py", "import torch"),
    ("Nothing left of the engine imports torch", "producer/config.py", "import torch.nn"),
    ("Nothing left of the engine imports torch", "worker/jobs/broker.py", "import torch"),
    ("Nothing left of the engine imports torch", "worker/main.py", "import worker.engine_process.boot"),
    (
        "Nothing right of jobs knows the wire, an event loop or a configuration",
        "worker/engine/request.py",
        "from schemas.job import Job",
    ),
    (
        "Nothing right of jobs knows the wire, an event loop or a configuration",
        "worker/images/tiling.py",
        "import asyncio",
    ),
    ("Nothing right of jobs knows the wire, an event loop or a configuration", "worker/model/text.py", "import redis"),
]

Lint = Callable[[], dict[str, str]]


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the packages, with the project's own contracts."""
    folder = tmp_path_factory.mktemp("planted")
    shutil.copy(ROOT / "pyproject.toml", folder)
    for package in PACKAGES:
        shutil.copytree(ROOT / package, folder / package, ignore=shutil.ignore_patterns("__pycache__"))
    return folder


@pytest.fixture(scope="module")
def lint(copy: Path) -> Lint:
    def run() -> dict[str, str]:
        report = subprocess.run(
            [sys.executable, "-c", "from importlinter.cli import lint_imports_command as c; c(['--no-cache'])"],
            cwd=copy,
            env={"PYTHONPATH": str(copy), "NO_COLOR": "1"},
            capture_output=True,
            text=True,
        ).stdout
        return dict(re.findall(r"^(.+?) (KEPT|BROKEN)(?: \(.*\))?$", report, flags=re.MULTILINE))

    return run


def contracts() -> set[str]:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    return {contract["name"] for contract in settings["tool"]["importlinter"]["contracts"]}


def test_every_contract_has_a_planted_violation() -> None:
    assert {name for name, _, _ in PLANTED} == contracts()


def test_every_contract_is_kept(lint: Lint) -> None:
    assert lint() == dict.fromkeys(contracts(), "KEPT")


@pytest.mark.parametrize(("name", "module", "planted"), PLANTED)
def test_a_violation_is_seen(copy: Path, lint: Lint, name: str, module: str, planted: str) -> None:
    path = copy / module
    before = path.read_text(encoding="utf-8")
    path.write_text(f"{before}\n{planted}\n", encoding="utf-8")
    try:
        assert lint()[name] == "BROKEN"
    finally:
        path.write_text(before, encoding="utf-8")
