"""Text to ids and back, with Moondream's control tokens kept out of what users write."""

import re
from collections.abc import Sequence
from pathlib import Path

import tokenizers

from worker.errors import CheckpointError
from worker.model.config import ModelConfig

__all__ = ["Tokenizer"]

_END = "<|endoftext|>"
_CONTROL = re.compile(r"<\|(endoftext|md_reserved_\d+)\|>")


class Tokenizer:
    """A byte-level BPE tokenizer in which the control tokens are special."""

    def __init__(self, document: str) -> None:
        """Read the contents of a tokenizer.json; raises `CheckpointError` when it is none."""
        try:
            self._backend = tokenizers.Tokenizer.from_str(document)
        except Exception as error:  # the library raises nothing narrower
            raise CheckpointError(f"not a tokenizer.json: {error}") from error
        # whatever the file's own flags say, control tokens are special: left out of what is read back, and their
        # spelling in a question is text, not control
        controls = sorted(spelling for spelling in self._backend.get_vocab() if _CONTROL.fullmatch(spelling))
        self._backend.add_special_tokens([tokenizers.AddedToken(spelling, special=True) for spelling in controls])
        self._backend.encode_special_tokens = True

    @classmethod
    def read(cls, path: Path) -> "Tokenizer":
        """Read a tokenizer.json."""
        try:
            return cls(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise CheckpointError(f"cannot read {path}: {error.strerror}") from error

    def tokenize(self, text: str) -> list[int]:
        """Return the ids of a text; never those of control tokens."""
        return list(self._backend.encode(text, add_special_tokens=False).ids)

    def detokenize(self, ids: Sequence[int]) -> str:
        """Return the text of ids: control tokens and ids not known give none, a torn character gives U+FFFD."""
        return str(self._backend.decode(list(ids), skip_special_tokens=True))

    def document(self) -> str:
        """Return the contents of a tokenizer.json that reads back as this one."""
        return str(self._backend.to_str())

    def mismatch(self, config: ModelConfig) -> str | None:
        """Say why this is not the tokenizer that the config speaks of, or return None.

        The tokenizer.json in the released Moondream 2 repository is that of an older vocabulary.
        """
        ids = config.tokenizer
        for end in {ids.bos_id, ids.eos_id}:
            if self._spelling(end) != _END:
                return f"id {end} is {self._spelling(end)!r}, not {_END!r}"
        for control in ids.control_ids:
            spelling = self._spelling(control) or ""
            if spelling == _END or not _CONTROL.fullmatch(spelling):
                return f"id {control} is {spelling!r}, not a control token"
        size = self._backend.get_vocab_size()
        if size > config.text.vocab_size:
            return f"it has {size} ids, the model {config.text.vocab_size}"
        return None

    def _spelling(self, token: int) -> str | None:
        spelling = self._backend.id_to_token(token)
        return None if spelling is None else str(spelling)
