"""Each import contract fails when its rule is broken; otherwise it would guard nothing."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("schemas", "producer", "worker")
CIRCLES = "No circle in any folder"
GATEWAY = "The gateway's state knows no call, and a call knows no route"

# For each contract: a module of the product, and an import that it must not have.
PLANTED = [
    ("Producer and worker meet only in schemas", "producer/stoop/client/transport.py", "import stoop_worker.errors"),
    ("Producer and worker meet only in schemas", "worker/stoop_worker/errors.py", "import stoop.errors"),
    ("Schemas stand alone", "schemas/stoop_schemas/job.py", "import redis"),
    ("Schemas stand alone", "schemas/stoop_schemas/names.py", "import stoop_worker.errors"),
    (
        "The worker's layers",
        "worker/stoop_worker/kernels/__init__.py",
        "import stoop_worker.models.moondream.text",
    ),
    ("The worker's layers", "worker/stoop_worker/engine/request.py", "import stoop_worker.jobs.outcome"),
    ("The worker's layers", "worker/stoop_worker/jobs/outcome.py", "import stoop_worker.main"),
    ("The worker's layers", "worker/stoop_worker/jobs/outcome.py", "import stoop_worker.engine_process.protocol"),
    ("Celery is imported by what speaks for it alone", "worker/stoop_worker/celery/dialect.py", "import celery"),
    ("Celery is imported by what speaks for it alone", "producer/stoop/config.py", "from kombu import Connection"),
    ("OpenTelemetry is imported by what exports traces alone", "producer/stoop/config.py", "import opentelemetry"),
    (
        "Jobs know the engine only as engine.request",
        "worker/stoop_worker/jobs/translate.py",
        "import stoop_worker.engine.scheduler",
    ),
    (
        "Jobs know the engine only as engine.request",
        "worker/stoop_worker/jobs/translate.py",
        "from stoop_worker.models import text",
    ),
    ("The engine imports no model", "worker/stoop_worker/engine/sequence.py", "import stoop_worker.models.families"),
    (
        "The engine imports no model",
        "worker/stoop_worker/engine/device/prefill.py",
        "from stoop_worker.models.moondream import vision",
    ),
    (
        "Families do not import each other, and what they share imports none",
        "worker/stoop_worker/models/second.py",  # a family that is not there
        "import stoop_worker.models.moondream.text",
    ),
    (
        "Families do not import each other, and what they share imports none",
        "worker/stoop_worker/models/loading/checkpoint.py",
        "import stoop_worker.models.moondream.names",
    ),
    (
        CIRCLES,
        "worker/stoop_worker/engine/skill.py",
        "import stoop_worker.engine.device.heads",
    ),
    (
        CIRCLES,
        "worker/stoop_worker/models/moondream/config_parts.py",
        "from stoop_worker.models.moondream.config_check import check",
    ),
    (
        "In the engine only device, config, graphs and tensors import torch",
        "worker/stoop_worker/engine/model.py",
        "from torch import nn",
    ),
    (
        "In the engine only device, config, graphs and tensors import torch",
        "worker/stoop_worker/engine/scheduler.py",
        "import torch",
    ),
    ("Nothing left of the engine imports torch", "worker/stoop_worker/images/crops.py", "import torch"),
    ("Nothing left of the engine imports torch", "producer/stoop/config.py", "import torch.nn"),
    ("Nothing left of the engine imports torch", "worker/stoop_worker/jobs/broker.py", "import torch"),
    (
        "Nothing left of the engine imports torch",
        "worker/stoop_worker/main.py",
        "import stoop_worker.engine_process.boot",
    ),
    (
        "Nothing right of jobs knows the wire, an event loop or a configuration",
        "worker/stoop_worker/engine/request.py",
        "from stoop_schemas.job import Job",
    ),
    (
        "Nothing right of jobs knows the wire, an event loop or a configuration",
        "worker/stoop_worker/images/tiling.py",
        "import asyncio",
    ),
    (
        "Nothing right of jobs knows the wire, an event loop or a configuration",
        "worker/stoop_worker/models/moondream/text.py",
        "import redis",
    ),
    ("The gateway knows the queue by its client and its operator", "producer/stoop/gateway/jobs.py", "import redis"),
    (
        "The gateway knows the queue by its client and its operator",
        "producer/stoop/gateway/call.py",
        "from stoop.redis.transport import RedisTransport",
    ),
    (CIRCLES, "producer/stoop/bulk/row.py", "import stoop.bulk.plan"),
    (CIRCLES, "schemas/stoop_schemas/names.py", "import stoop_schemas.job"),
    (GATEWAY, "producer/stoop/gateway/gateway.py", "import stoop.gateway.batch_run"),
    (GATEWAY, "producer/stoop/gateway/admitted.py", "from stoop.gateway.call import Call"),
    (GATEWAY, "producer/stoop/gateway/route.py", "import stoop.gateway.routes"),
    ("Only the gateway speaks HTTP to callers", "producer/stoop/config.py", "import starlette.requests"),
    ("Only the gateway's own folder for it speaks gRPC", "producer/stoop/gateway/app.py", "import grpc"),
    (
        "The exporter knows the queue by its operator",
        "producer/stoop/exporter/reader.py",
        "from stoop.redis.calls import RedisCalls",
    ),
    ("Only its commands import the gateway", "producer/stoop/client/events.py", "import stoop.gateway.errors"),
    ("Only its commands import the gateway", "producer/stoop/cli/app.py", "import stoop.gateway.server"),
]


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the packages, with the project's own contracts."""
    folder = tmp_path_factory.mktemp("planted")
    shutil.copy(ROOT / "pyproject.toml", folder)
    for package in PACKAGES:
        shutil.copytree(ROOT / package, folder / package, ignore=shutil.ignore_patterns("__pycache__"))
    return folder


@pytest.fixture(scope="module")
def kept(copy: Path) -> str:
    """The linter's report on the packages as they are."""
    return lint(copy)


@pytest.fixture(scope="module")
def broken(copy: Path, kept: str) -> list[tuple[str, str]]:
    """For each violation, how its import is reported, and the report on its contract.

    All are planted at once, because the linter takes a second. Those that make a circle come first: in one report with
    the others they would be parts of larger circles.
    """
    found = []
    for circles in (True, False):
        ours = [row for row in PLANTED if (row[0] == CIRCLES) is circles]
        seen = [plant(copy, module, planted) for _, module, planted in ours]
        details = re.split(r"^(.+)\n-{4,}\n", lint(copy).partition("Broken contracts\n")[2], flags=re.MULTILINE)
        parts = dict(zip(details[1::2], details[2::2], strict=True))
        found += [(row, (pattern, parts[row[0]])) for row, pattern in zip(ours, seen, strict=True)]
    return [dict(found)[row] for row in PLANTED]


def lint(copy: Path) -> str:
    return subprocess.run(
        [sys.executable, "-c", "from importlinter.cli import lint_imports_command as c; c(['--no-cache'])"],
        cwd=copy,
        env={
            "PYTHONPATH": os.pathsep.join(str(copy / package) for package in PACKAGES),
            "NO_COLOR": "1",
            "COLUMNS": "200",
        },
        capture_output=True,
        text=True,
    ).stdout


def plant(copy: Path, module: str, line: str) -> str:
    """Add a line to a module; return a pattern of how its import is reported."""
    path = copy / module
    before = path.read_text(encoding="utf-8") if path.exists() else ""
    path.write_text(f"{before}{line}\n", encoding="utf-8")
    importer = ".".join(Path(module).with_suffix("").parts[1:]).removesuffix(".__init__")
    # a chain of imports may begin with several modules, a line for each; a circle is reported without lines
    circle, chain = rf"- \.{path.stem} -> \.", rf"{re.escape(importer)}( -> \S+)?\s+\(l\.{before.count(chr(10)) + 1}\)"
    return rf"({circle}|{chain})"


def contracts() -> set[str]:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    return {contract["name"] for contract in settings["tool"]["importlinter"]["contracts"]}


def test_every_contract_has_a_planted_violation() -> None:
    assert {name for name, _, _ in PLANTED} == contracts()


def test_every_contract_is_kept(kept: str) -> None:
    found = dict(re.findall(r"^(.+?) (KEPT|BROKEN)(?: \(.*\))?$", kept, flags=re.MULTILINE))
    assert found == dict.fromkeys(contracts(), "KEPT")


@pytest.mark.parametrize("number", range(len(PLANTED)), ids=[f"{module}: {line}" for _, module, line in PLANTED])
def test_a_violation_is_reported(number: int, broken: list[tuple[str, str]]) -> None:
    pattern, report = broken[number]
    assert re.search(pattern, report)
