"""A model's own chat template: from messages to the text that the model was trained on.

Formats: `chat_template.jinja`, else `chat_template` in chat_template.json, else in tokenizer_config.json. A template is
a program by a stranger: `sandbox/` bounds it.
"""

from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any, Final

from stoop_worker.errors import CheckpointError
from stoop_worker.models.loading.config_file import read_document
from stoop_worker.models.loading.sandbox.budget import budget
from stoop_worker.models.loading.sandbox.environment import Sandbox

__all__ = ["ChatTemplate", "TemplateError"]

_MOST_SOURCE: Final = 1 << 18
_MOST_CHARACTERS: Final = 1 << 21
_MOST_WORK: Final = 1 << 24
_NAMES: Final = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")


class TemplateError(ValueError):
    """The template refuses these messages, or cannot be run on them."""


class ChatTemplate:
    """A compiled template. Any thread may render it."""

    def __init__(self, source: str, tokens: Mapping[str, str] | None = None) -> None:
        """Compile it; `tokens` are the special tokens by their names, such as bos_token.

        Raises `CheckpointError` if it does not compile.
        """
        if len(source) > _MOST_SOURCE:
            raise CheckpointError(f"the chat template has {len(source)} characters: at most {_MOST_SOURCE}")
        self._tokens = dict(tokens or {})
        try:
            with budget(_MOST_WORK):  # constants are computed while it compiles
                self._template = Sandbox().compile_template(source)
        except Exception as error:  # a stranger's program: whatever it raises, the model cannot be loaded
            raise CheckpointError(f"the chat template does not compile: {error}") from error

    @classmethod
    def read(cls, folder: Path) -> "ChatTemplate":
        """Find the template of the model in a folder; raises `CheckpointError` if there is none."""
        path = folder / "tokenizer_config.json"
        document = read_document(path) if path.exists() else {}
        source = _source(folder, document)
        if source is None:
            raise CheckpointError(
                f"{folder} has no chat template: it is in chat_template.jinja, chat_template.json or"
                " tokenizer_config.json. A model without one is not made for chats"
            )
        return cls(source, _tokens(folder, document))

    def render(
        self, messages: Sequence[Mapping[str, Any]], *, today: date | None = None, add_generation_prompt: bool = True
    ) -> str:
        """Return the text of messages, each with a `role` and a `content`; raises `TemplateError`.

        A template that asks for the date gets `today`. Without `today` it uses its author's default date, so the same
        messages have the same text on any day.
        """
        variables: dict[str, Any] = {
            **self._tokens,
            "messages": messages,
            "tools": None,
            "documents": None,
            "add_generation_prompt": add_generation_prompt,
            "raise_exception": _refuse,
        }
        if today is not None:
            variables |= {"date_string": today.strftime("%d %b %Y"), "strftime_now": today.strftime}
        try:
            with budget(_MOST_WORK):
                text = self._template.render(variables)
        except TemplateError:
            raise
        except Exception as error:  # a stranger's program may raise anything
            raise TemplateError(f"the model's chat template cannot take these messages: {error}") from error
        if len(text) > _MOST_CHARACTERS:
            raise TemplateError(f"the chat has {len(text)} characters: at most {_MOST_CHARACTERS}")
        return text


def _refuse(message: object) -> None:
    raise TemplateError(f"the model's chat template refuses these messages: {message}")


def _source(folder: Path, document: Mapping[str, Any]) -> str | None:
    path = folder / "chat_template.jinja"
    if path.exists():
        return _read(path)
    path = folder / "chat_template.json"
    found = read_document(path).get("chat_template") if path.exists() else None
    if found is None:
        found = document.get("chat_template")
    if isinstance(found, list):
        named = {each.get("name"): each.get("template") for each in found if isinstance(each, Mapping)}
        found = named.get("default")
    if found is not None and not isinstance(found, str):
        raise CheckpointError(f"{folder}: chat_template must be a string, or a list of names and templates")
    return found


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CheckpointError(f"cannot read {path}: {error}") from error


def _tokens(folder: Path, document: Mapping[str, Any]) -> dict[str, str]:
    """Return the special tokens by name; a token is a string, or an object whose `content` it is."""
    path = folder / "special_tokens_map.json"
    named = {**(read_document(path) if path.exists() else {}), **document}
    found = {name: named.get(name) for name in _NAMES}
    spelled = {name: each.get("content") if isinstance(each, Mapping) else each for name, each in found.items()}
    return {name: each for name, each in spelled.items() if isinstance(each, str)}
