"""Messages name only flags and variables that exist."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from typer.main import get_command

from stoop.cli.app import app
from stoop.config import ProducerConfig
from stoop_worker.config import WorkerConfig
from stoop_worker.engine.config import EngineConfig
from tests.project.modules import ROOT

FLAG = re.compile(r"(?<![\w-])--[a-z][\w-]*")
VARIABLE = re.compile(r"STOOP_[A-Z0-9_]*[A-Z0-9]")
# their flags are another program's, or names of colours in a page
OTHERS = {"sheet.py", "compiler.py", "embedded.py"}


def sources() -> Iterator[Path]:
    for package in ("schemas/stoop_schemas", "producer/stoop", "worker/stoop_worker"):
        yield from (ROOT / package).rglob("*.py")


@cache
def texts_of(path: Path) -> tuple[str, ...]:
    """Every piece of text in a module except its docstrings."""
    tree = ast.parse(path.read_text("utf-8"))
    docs = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    strings = (node for node in ast.walk(tree) if isinstance(node, ast.Constant) and id(node) not in docs)
    return tuple(node.value for node in strings if isinstance(node.value, str))


def flags_of(command: Any) -> Iterator[str]:
    loaded = command._load() if hasattr(command, "_load") else command
    for parameter in loaded.params:
        yield from parameter.opts
        yield from parameter.secondary_opts
    for child in getattr(loaded, "commands", {}).values():
        yield from flags_of(child)


def variables_of(command: Any) -> Iterator[str]:
    loaded = command._load() if hasattr(command, "_load") else command
    yield from (parameter.envvar for parameter in loaded.params if isinstance(parameter.envvar, str))
    for child in getattr(loaded, "commands", {}).values():
        yield from variables_of(child)


def test_no_message_names_a_flag_that_does_not_exist() -> None:
    known = {"--help", *flags_of(get_command(app))}
    named = {
        flag: path.name
        for path in sources()
        if path.name not in OTHERS
        for text in texts_of(path)
        for flag in FLAG.findall(text)
    }
    assert {flag: place for flag, place in named.items() if flag not in known} == {}


def test_every_variable_named_in_a_message_is_read() -> None:
    configured = {
        f"STOOP_{field.upper()}" for config in (ProducerConfig, WorkerConfig) for field in config.model_fields
    }
    known = configured | set(variables_of(get_command(app)))
    named = {name: path.name for path in sources() for text in texts_of(path) for name in VARIABLE.findall(text)}
    assert {name: place for name, place in named.items() if name not in known} == {}


def test_the_engine_advises_no_setting_that_a_user_cannot_set() -> None:
    hidden = set(EngineConfig.__dataclass_fields__) - set(WorkerConfig.model_fields)
    advice = re.compile(rf"(smaller|larger|set|use|give|raise|lower) (a )?({'|'.join(hidden)})\b")
    texts = [text for path in sources() for text in texts_of(path)]
    assert [text for text in texts if advice.search(text)] == []
