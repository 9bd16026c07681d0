"""Every command of ours in a page exists, with the options that the page gives it."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from typer.main import get_command

from stoop.cli.app import app
from tests.project.modules import ROOT

COMMAND = re.compile(r"(?:^|`|&& |\| |\$ )(?:\.venv/bin/)?stoop ([a-z][^`\n#|]*)", re.MULTILINE)
OPTION = re.compile(r"--[a-z][\w-]*")
FOLDERS = ("docs", "producer", "schemas", "worker", "deploy", "examples", "tests")


def pages() -> Iterator[Path]:
    yield from (ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md"))
    for folder in FOLDERS:
        yield from (ROOT / folder).rglob("*.md")


def loaded(command: Any) -> Any:
    return command._load() if hasattr(command, "_load") else command


def fault(words: list[str]) -> str | None:
    """Return the first word that the command line would not take as a command or an option."""
    command = loaded(get_command(app))
    while words and hasattr(command, "commands"):
        if words[0].startswith("-"):
            return None
        if words[0] not in command.commands:
            return words[0]
        command, words = loaded(command.commands[words[0]]), words[1:]
    known = {"--help", *(name for each in command.params for name in (*each.opts, *each.secondary_opts))}
    named = (word.partition("=")[0] for word in words)
    return next((name for name in named if OPTION.fullmatch(name) and name not in known), None)


def test_every_command_in_a_page_exists_with_its_options() -> None:
    written = [(page, command.split()) for page in pages() for command in COMMAND.findall(page.read_text("utf-8"))]
    assert len(written) > 100
    faults = [
        f"{page.relative_to(ROOT)}: stoop {' '.join(words)}: {fault(words)}" for page, words in written if fault(words)
    ]
    assert faults == []


def test_a_command_or_an_option_that_is_not_there_is_found() -> None:
    assert fault(["bulk", "pictures/", "--skil", "detect"]) == "--skil"
    assert fault(["dead", "lst"]) == "lst"
    assert fault(["worker", "--model", "moondream2"]) is None
