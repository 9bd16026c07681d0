"""Turns messages into ids: the template's text may contain control tokens, the users' text never does."""

import re
from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any

from stoop_worker.models.loading.chat_template import ChatTemplate, TemplateError
from stoop_worker.models.loading.tokenizer import Tokenizer

__all__ = ["ChatPrompt"]

_PRIVATE = range(0xE000, 0xF900)


class ChatPrompt:
    """Lays messages out as ids. Any thread may use it."""

    def __init__(self, template: ChatTemplate, tokenizer: Tokenizer) -> None:
        self._template = template
        self._tokenizer = tokenizer
        self._specials = {spelling: token for spelling, token in tokenizer.specials.items() if len(spelling) > 1}
        longest_first = sorted(map(re.escape, self._specials), key=len, reverse=True)
        self._split = re.compile(f"({'|'.join(longest_first)})" if longest_first else "(?!)()")
        self._begins = re.compile(f"(?={'|'.join(longest_first)})" if longest_first else "(?!)")

    def ids(self, messages: Sequence[Mapping[str, Any]], *, today: date | None = None) -> list[int]:
        """Return the ids of messages, ready for the model's answer; raises `TemplateError`.

        A `content` is a string, or a list of parts: {"type": "text", "text": ...} and others, which have no text.
        """
        mark = _mark(messages)
        marked = [{**message, "content": self._marked(message["content"], mark)} for message in messages]
        return [token for piece in self._pieces(marked, today) for token in self._tokenize(piece, mark)]

    def _pieces(self, messages: Sequence[Mapping[str, Any]], today: date | None) -> list[str]:
        return self._split.split(self._template.render(messages, today=today))

    def _tokenize(self, piece: str, mark: str) -> list[int]:
        special = self._specials.get(piece)
        if special is not None:
            return [special]
        return self._tokenizer.tokenize(piece.replace(mark, "")) if piece else []

    def _marked(self, content: str | Sequence[Mapping[str, Any]], mark: str) -> Any:
        if isinstance(content, str):
            return self._mark_text(content, mark)
        return [{**part, "text": self._mark_text(part["text"], mark)} if "text" in part else part for part in content]

    def _mark_text(self, text: str, mark: str) -> str:
        """Put the mark after the first character of every special token's spelling, so that it is no longer one.

        That includes a beginning of one at the end of the text, which the next part could complete.
        """
        starts = {match.start() for match in self._begins.finditer(text)} | self._unfinished(text)
        pieces, done = [], 0
        for start in sorted(starts):
            pieces += [text[done : start + 1], mark]
            done = start + 1
        return "".join([*pieces, text[done:]])

    def _unfinished(self, text: str) -> set[int]:
        longest = max(map(len, self._specials), default=1)
        return {
            len(text) - size
            for size in range(1, min(longest, len(text) + 1))
            if any(spelling.startswith(text[-size:]) for spelling in self._specials)
        }


def _mark(messages: Sequence[Mapping[str, Any]]) -> str:
    """Return a character that no content has; raises `TemplateError` if there is none."""
    used = {character for message in messages for text in _texts(message["content"]) for character in set(text)}
    found = next((chr(code) for code in _PRIVATE if chr(code) not in used), None)
    if found is None:
        raise TemplateError("the chat has every character of Unicode's private use area: leave one of them out")
    return found


def _texts(content: str | Sequence[Mapping[str, Any]]) -> list[str]:
    return [content] if isinstance(content, str) else [part["text"] for part in content if "text" in part]
