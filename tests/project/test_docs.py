"""The documentation site: it builds, loads nothing from elsewhere, and its tables are complete."""

import ast
import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from docs.messages import message_of, messages_page
from docs.settings import settings_page
from stoop.errors import IdempotencyConflict, QueueFull
from stoop_schemas.failure import RETRYABLE, FailureCode
from stoop_schemas.job import Job, check
from stoop_schemas.skill import Skill
from stoop_worker.engine.config import EngineConfig
from tests.project.modules import ROOT

pytest.importorskip("mkdocs")

EMPTY = Job(id="1", skill=Skill.QUERY)

_LOADED = re.compile(r"<(?:script|link|img|iframe|source)[^>]*?(?:src|href)=[\"']?(?:https?:)?//[^>]*>")


def refusal(call: Callable[[], object]) -> Exception:
    try:
        call()
    except Exception as error:
        return error
    raise AssertionError("nothing was refused")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site; a link that leads nowhere fails the build."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", str(folder)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    return folder


def test_the_site_is_whole(site: Path) -> None:
    pages = {page.relative_to(site).as_posix(): page.read_text(encoding="utf-8") for page in site.rglob("*.html")}
    assert {"index.html", "start/web.html", "reference/python.html", "reference/wire.html"} <= set(pages)
    assert "the queue is full: submit again in …" in pages["operate/messages.html"]
    assert "POST /v1/chat/completions" in pages["reference/http.html"]
    assert "cancel_on_exit" in pages["reference/python.html"], "signatures of the client"
    assert {name: _LOADED.findall(text) for name, text in pages.items() if _LOADED.search(text)} == {}


@pytest.mark.parametrize("words", ["COCO", "reconnect", "out of memory"])
def test_a_search_finds(site: Path, words: str) -> None:
    index = json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))
    assert any(words.lower() in entry["text"].lower() for entry in index["docs"])


@pytest.fixture(scope="module")
def messages() -> str:
    """The page of messages, which is made from all the code."""
    return messages_page(ROOT)


@pytest.mark.parametrize(
    "error",
    [QueueFull(3), IdempotencyConflict("1"), refusal(lambda: EngineConfig(page_size=0)), refusal(lambda: check(EMPTY))],
)
def test_a_message_is_on_the_page_of_messages(error: Exception, messages: str) -> None:
    listed = re.findall(r"^- (?:`` (.+?) ``|`(.+?)`)", messages, re.MULTILINE)
    patterns = [".*".join(map(re.escape, (one or other).split("…"))) for one, other in listed]
    assert any(re.fullmatch(each, str(error), re.DOTALL) for each in patterns if len(each) > 20), error


def test_every_sentence_that_is_raised_is_on_the_page_of_messages(messages: str) -> None:
    raised = {
        text
        for package in ("schemas/stoop_schemas", "producer/stoop", "worker/stoop_worker")
        for path in (ROOT / package).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call)
        if (text := message_of(node.exc)) and any(letter.isalpha() for letter in text)
    }
    assert len(raised) > 400
    assert {text for text in raised if text not in messages} == set()


def test_every_model_of_the_catalog_has_a_row() -> None:
    catalog = tomllib.loads((ROOT / "worker/stoop_worker/models/catalog.toml").read_text(encoding="utf-8"))
    rows = re.findall(r"^\| `([^`]+)` \|(.*)\|$", (ROOT / "docs/models.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert {name: "pinned" in rest for name, rest in rows} == {
        name: "revision" in entry for name, entry in catalog.items()
    }


def test_the_python_guide_has_every_setting_of_a_client() -> None:
    client, _ = settings_page().split("## A worker's")
    table = client[client.index("| variable |") :].strip()
    assert table in (ROOT / "docs/guides/python.md").read_text(encoding="utf-8")


def test_every_failure_code_has_a_remedy() -> None:
    page = (ROOT / "docs/operate/troubleshooting.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `(\w+)` \| (yes|no) \|", page, re.MULTILINE))
    assert rows == {code.value: "yes" if code in RETRYABLE else "no" for code in FailureCode}
