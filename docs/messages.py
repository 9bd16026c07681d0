"""Lists every message of an error or a warning, from the code that raises, prints or logs it."""

import ast
from collections.abc import Collection, Container, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

__all__ = ["PARTS", "message_of", "messages", "messages_page"]

PARTS: Final = {
    "schemas/stoop_schemas": "The contract",
    "producer/stoop/client": "The client",
    "producer/stoop/gateway": "The gateway",
    "producer/stoop/bulk": "Bulk runs",
    "producer/stoop/export": "Exports",
    "producer/stoop/draw": "Drawings",
    "producer/stoop/celery": "Celery",
    "producer/stoop": "The command line and the operator's commands",
    "worker/stoop_worker/engine": "The engine",
    "worker/stoop_worker/models": "Models and checkpoints",
    "worker/stoop_worker/jobs": "Jobs on the worker",
    "worker/stoop_worker": "The worker",
}
"""The folders of the product, and their headings on the page; a file belongs to the first that holds it."""

_TOP: Final = """# Every message

Every message of an error or a warning that Stoop can print, from its code. `…` stands for a value. Search this site for
the words of the message that you see. It says what to do; [Troubleshooting](troubleshooting.md) says more about
the usual ones. The word behind a message is the exception, or the level in the log.
"""
_LEVELS: Final = ("warning", "error", "exception", "critical")
_DEFECTS: Final = ("AssertionError", "NotImplementedError", "StopIteration", "EOFError", "SystemExit", "Exit")


def messages_page(root: Path) -> str:
    """Return the page in Markdown."""
    # walking a tree takes longer than reading it
    modules = {
        path.relative_to(root).as_posix(): list(ast.walk(ast.parse(path.read_text("utf-8")))) for path in _sources(root)
    }
    exceptions = {name for nodes in modules.values() for name in _raised(nodes)}
    sections: dict[str, dict[str, set[str]]] = {heading: {} for heading in PARTS.values()}
    for name, nodes in modules.items():
        heading = next(heading for folder, heading in PARTS.items() if name.startswith(f"{folder}/"))
        for kind, text in messages(nodes, exceptions):
            sections[heading].setdefault(text, set()).update({kind} - {""})
    parts = [f"## {heading}\n\n" + "\n".join(_lines(found)) for heading, found in sections.items()]
    return "\n\n".join([_TOP.strip(), *parts]) + "\n"


def messages(nodes: Collection[ast.AST], exceptions: Container[str]) -> Iterator[tuple[str, str]]:
    """Yield the kind and the text of each message of a module by its nodes.

    `exceptions` are the names of those that it may make.
    """
    assigned = sorted(_assigned(nodes))
    for node in nodes:
        match node:
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)) if name in exceptions:
                kind = name
            case ast.Call(func=ast.Attribute(value=ast.Name(id="log"), attr=name)) if name in _LEVELS:
                kind = name
            case ast.Call(func=ast.Attribute(attr="echo"), keywords=[*_, ast.keyword(arg="err")]):
                kind = "printed"
            case ast.Call(func=ast.Attribute(attr="of", value=ast.Name(id="Failure"))):
                kind = "Failure"
            case ast.Call(func=ast.Attribute(attr="__init__")):
                kind = ""
            case ast.Raise(exc=ast.Call() as node):
                kind = ""  # a function of the module makes the exception
            case _:
                continue
        # a name has the text that it was given last before the call, or at the end of the module
        before = [(name, text) for line, name, text in assigned if line < node.lineno]
        text = message_of(node, {name: text for _, name, text in assigned} | dict(before))
        if text is not None and any(letter.isalpha() for letter in text):
            yield kind, text


def message_of(call: ast.Call, known: Mapping[str, str] = MappingProxyType({})) -> str | None:
    """Return the text among a call's arguments that is a sentence, maybe by a `known` name; None if there is none."""
    arguments = [*call.args, *(keyword.value for keyword in call.keywords)]
    texts = [known.get(each.id) if isinstance(each, ast.Name) else _text(each) for each in arguments]
    return next((" ".join(text.split()) for text in texts if text is not None and " " in text), None)


def _lines(found: Mapping[str, set[str]]) -> Iterator[str]:
    for text in sorted(found, key=str.lower):
        kinds = f" ({', '.join(sorted(found[text]))})" if found[text] else ""
        yield f"- {_quoted(text)}{kinds}"


def _sources(root: Path) -> Iterator[Path]:
    for package in ("schemas/stoop_schemas", "producer/stoop", "worker/stoop_worker"):
        yield from sorted((root / package).rglob("*.py"))


def _raised(nodes: Collection[ast.AST]) -> Iterator[str]:
    """Yield the names of the exceptions that a module raises."""
    for node in nodes:
        match node:
            case ast.Raise(exc=ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name))):
                if name[0].isupper() and name not in _DEFECTS:
                    yield name


def _assigned(nodes: Collection[ast.AST]) -> Iterator[tuple[int, str, str]]:
    """Yield the line, the name and the text of each assignment of a text."""
    for node in nodes:
        match node:
            case (
                ast.Assign(targets=[ast.Name(id=name)], value=value)
                | ast.AnnAssign(target=ast.Name(id=name), value=value)
            ) if text := value and _text(value):
                yield value.lineno, name, text


def _text(node: ast.AST) -> str | None:
    match node:
        case ast.Constant(value=str() as value):
            return value
        case ast.JoinedStr(values=values):
            return "".join(_text(each) or "…" for each in values)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return f"{_text(left) or '…'}{_text(right) or '…'}"
        case ast.IfExp(body=body, orelse=other):
            return _text(body) or _text(other)
    return None


def _quoted(text: str) -> str:
    """Return a message with every character that Markdown would interpret escaped."""
    fence = "``" if "`" in text else "`"
    padded = f" {text} " if "`" in text else text
    return f"{fence}{padded}{fence}"
