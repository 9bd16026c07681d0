"""The project speaks of itself alone, and in its own words: one meaning a word, in the names of the product too."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.project.modules import ROOT, Module, modules

# Put together here, so that this file does not contain them.
FORBIDDEN = [
    r"/(root|home)" + r"/\w",
    r"(?<![\w.])/wo" + r"rk\b",
    r"\bsha" + r"red/",
    r"pypi\." + r"org|python" + r"hosted|download\.py" + r"torch|registry\.npm" + r"js",
    r"(?i)\bissue " + r"#?\d",
    r"\bTO" + r"DO\b|\bFIX" + r"ME\b",
]
DRAWERS = re.compile(r"util|helper|manager|handler|common|misc")
TEXT = {".py", ".md", ".toml", ".lua", ".json", ".yml", ".yaml", ".conf", ".Dockerfile", ".sh", ""}
TOOLS = {"__pycache__", "node_modules"}
SKIPPED = {".git", "LICENSE", "demo-output", "build", "dist"}


def texts() -> list[Path]:
    """Every file of the project that holds text."""
    return [path for top in ROOT.iterdir() if _ours(top) for path in _files(top)]


def _ours(path: Path) -> bool:
    # a name that begins with a dot is a tool's, except the files that the project itself keeps there
    kept = {".ci", ".gitignore", ".dockerignore"}
    return path.name not in SKIPPED and (not path.name.startswith(".") or path.name in kept)


def _files(top: Path) -> list[Path]:
    found = [top] if top.is_file() else [path for path in top.rglob("*") if path.is_file()]
    return [path for path in found if path.suffix in TEXT and TOOLS.isdisjoint(path.parts)]


@pytest.mark.parametrize("pattern", FORBIDDEN)
def test_no_file_has_a_forbidden_word(pattern: str) -> None:
    forbidden = re.compile(pattern)
    found = {
        f"{path.relative_to(ROOT)}: {match[0]}"
        for path in texts()
        for match in forbidden.finditer(path.read_text(encoding="utf-8"))
    }
    assert found == set()


def test_there_are_no_drawers() -> None:
    paths = {path.relative_to(ROOT).as_posix() for path in texts()}
    assert {path for path in paths if DRAWERS.search(Path(path).name.lower())} == set()
    classes = {name for module in modules() for name in module.classes}
    assert {name for name in classes if DRAWERS.search(name.lower()) or name.endswith("Base")} == set()


def test_it_reads_the_projects_files() -> None:
    names = {path.relative_to(ROOT).as_posix() for path in texts()}
    assert {
        "README.md",
        "pyproject.toml",
        "Makefile",
        ".ci/run",
        "schemas/stoop_schemas/names.py",
        "schemas/README.md",
    } <= names


BANNED = {
    "told": "the value's own noun",
    "tell": "the verb: send, report, return",
    "say": "the verb: send, report, return",
    "said": "the value's own noun",
    "turn": "iteration or round; the tenants' turns are the queue's only ones, and have no identifier",
    "bear": "check or wait",
    "house": "allocate",
    "hurry": "stop_now",
    "clerk": "sidecar",
    "desk": "sidecar",
    "roster": "registry",
    "tray": "segment or slot",
    "errand": "job",
    "kick": "the verb",
    "impl": "the noun of the class",
    "wrapper": "the noun of the class",
    "service": "the noun of the class",
    "processor": "the noun of the class",
    "payload": "bytes, or the type",
    "item": "the noun",
    "thing": "the noun",
    "info": "the noun",
    "whitelist": "allowed",
    "blacklist": "refused",
    "slave": "replica",
}
"""Words that name nothing here, and the words to use in their place."""

_JOBS = ("worker/stoop_worker/jobs/", "worker/stoop_worker/celery/")
_WIRE = ("schemas/", "producer/", *_JOBS)
_TOP = tuple(f"worker/stoop_worker/{name}.py" for name in ("config", "health", "media_parts", "main", "registration"))
_ENGINE = ("worker/stoop_worker/engine/", "worker/stoop_worker/models/", "worker/stoop_worker/kernels/")

ONLY_IN = {
    # the queue's words
    "delivery": _JOBS,
    "lease": (*_JOBS, *_TOP),
    "tenant": (*_WIRE, *_TOP),
    "lane": (*_WIRE, *_TOP, "worker/stoop_worker/metrics.py", "worker/stoop_worker/kernels/"),  # a warp's lanes
    "quarantine": (*_WIRE, *_TOP),
    "pack": (*_WIRE, "worker/stoop_worker/engine_process/"),  # from values to bytes
    "unpack": (*_WIRE, "worker/stoop_worker/engine_process/"),
    "session": ("producer/stoop/bulk/",),  # one run of `stoop bulk`
    # the engine's words
    "seat": ("worker/stoop_worker/engine/",),
    "slot": ("worker/stoop_worker/engine/", "worker/stoop_worker/kernels/"),  # a token's place in the KV cache
    "kv": _ENGINE,
    "logit": (*_ENGINE, "producer/stoop/foreign_parameters.py"),  # OpenAI's `logit_bias`
    "rollback": _ENGINE,
    "prefill": (*_ENGINE, "schemas/stoop_schemas/result.py"),
    "crop": (
        *_ENGINE,
        "worker/stoop_worker/config.py",
        "worker/stoop_worker/engine_process/",
        "worker/stoop_worker/images/",
    ),
}
"""Words with one owner, and the folders and files of that owner."""

ALLOWED = {
    ("producer/stoop/cli/command_group.py", "info_name"),  # click's parameter
}


def identifiers(module: Module) -> Iterator[str]:
    """Yield the names that a module defines: its own, classes, functions, parameters, variables and attributes."""
    yield module.path.rsplit("/", 1)[-1].removesuffix(".py")
    for node in ast.walk(module.tree):
        match node:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield name
            case ast.arg(arg=name) | ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield name


def words(identifier: str) -> set[str]:
    """Return the words of a name in lower case, plurals also without their s."""
    found = {word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", identifier)}
    return found | {word.removesuffix("s") for word in found}


NAMED = {
    (module.path, name): words(name)
    for module in modules()
    for name in identifiers(module)
    if (module.path, name) not in ALLOWED
}


def test_words_are_found_in_names() -> None:
    assert words("DeliveryKey") == {"delivery", "key"}
    assert words("_in_lanes_BT") >= {"in", "lane", "bt"}
    assert ("worker/stoop_worker/jobs/lease.py", "lease") in NAMED


@pytest.mark.parametrize("word", BANNED)
def test_no_name_has_a_word_without_a_meaning(word: str) -> None:
    assert {place for place, found in NAMED.items() if word in found} == set(), f"say {BANNED[word]}"


@pytest.mark.parametrize("word", ONLY_IN)
def test_a_word_stays_with_its_owner(word: str) -> None:
    users = {place for place, found in NAMED.items() if word in found}
    assert users, "nobody uses the word: take it out of the table"
    assert {(path, name) for path, name in users if not path.startswith(ONLY_IN[word])} == set()
