"""Converts text to ids and back; users' text never becomes control tokens."""

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Final

import tokenizers

from stoop_worker.errors import CheckpointError

__all__ = ["Tokenizer"]

_CONTROL = re.compile(r"<\|\w+\|>")
_SHORT_TEXT: Final = 256
_KEPT_TEXTS: Final = 512


class Tokenizer:
    """A byte-level BPE tokenizer in which the control tokens, spelled <|…|>, are special."""

    def __init__(self, document: str) -> None:
        """Read the contents of a tokenizer.json; raises `CheckpointError` if they are not valid."""
        try:
            self._backend = tokenizers.Tokenizer.from_str(document)
        except Exception as error:  # the library raises nothing narrower
            raise CheckpointError(f"not a tokenizer.json: {error}") from error
        # control tokens are special regardless of the file's flags: they are left out of decoded text, and their
        # spelling in a question is plain text
        controls = sorted(spelling for spelling in self._backend.get_vocab() if _CONTROL.fullmatch(spelling))
        self._backend.add_special_tokens([tokenizers.AddedToken(spelling, special=True) for spelling in controls])
        self._backend.encode_special_tokens = True
        known = self._backend.get_added_tokens_decoder()
        self._specials = {token.content: number for number, token in known.items() if token.special}
        self._joins = isinstance(self._backend.decoder, tokenizers.decoders.ByteLevel)
        self._pieces: list[str | None] | None = None  # by id, once they are needed
        self._kept_ids = lru_cache(_KEPT_TEXTS)(self._encode)

    @classmethod
    def read(cls, path: Path) -> "Tokenizer":
        """Read a tokenizer.json."""
        try:
            return cls(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise CheckpointError(f"cannot read {path}: {error.strerror}") from error

    def tokenize(self, text: str) -> list[int]:
        """Return the ids of a text, never those of control tokens. Those of short texts are kept for the next call."""
        # a run over many images asks the same question about each
        return list(self._kept_ids(text) if len(text) <= _SHORT_TEXT else self._encode(text))

    def _encode(self, text: str) -> tuple[int, ...]:
        return tuple(self._backend.encode(text, add_special_tokens=False).ids)

    def framing(self) -> list[int]:
        """Return the ids that the file's own rule puts around a text, such as those of <s> and </s>."""
        return list(self._backend.encode("", add_special_tokens=True).ids)

    def detokenize(self, ids: Sequence[int]) -> str:
        """Return the text of ids: control tokens and unknown ids give none, an incomplete character gives U+FFFD."""
        return str(self._backend.decode(list(ids), skip_special_tokens=True))

    def piece(self, token: int) -> str | None:
        """Return the text that an id adds to any text of whole characters; None if only `detokenize` can determine it.

        Only byte-level tokenizers join texts unchanged, and only if the id is not part of a character. The first call
        takes some tenths of a second for a large vocabulary.
        """
        if self._pieces is None:
            self._pieces = self._all_pieces()
        return self._pieces[token] if token < len(self._pieces) else None

    def _all_pieces(self) -> list[str | None]:
        if not self._joins:
            return []
        ids = [[token] for token in range(self.size)]
        texts = self._backend.decode_batch(ids, skip_special_tokens=True)
        return [None if "\N{REPLACEMENT CHARACTER}" in text else text for text in texts]

    def document(self) -> str:
        """Return the contents of a tokenizer.json that reads back as this one."""
        return str(self._backend.to_str())

    @property
    def specials(self) -> Mapping[str, int]:
        """The ids of the control tokens by their spelling."""
        return self._specials

    @property
    def size(self) -> int:
        """The number of ids."""
        return int(self._backend.get_vocab_size())

    def id_of(self, spelling: str) -> int | None:
        """Return the id that the file spells `spelling`; None if there is none."""
        token = self._backend.token_to_id(spelling)
        return None if token is None else int(token)

    def spelling(self, token: int) -> str | None:
        """Return the file's spelling of an id; None if the id is unknown."""
        spelling = self._backend.id_to_token(token)
        return None if spelling is None else str(spelling)
