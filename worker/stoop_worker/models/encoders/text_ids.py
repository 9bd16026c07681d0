"""Turns texts into the ids that an encoder reads, special tokens included."""

from stoop_worker.engine.encoder import Ids
from stoop_worker.engine.model import RequestInvalid
from stoop_worker.engine.request import Refusal
from stoop_worker.errors import CheckpointError
from stoop_worker.models.loading.download import Source
from stoop_worker.models.loading.tokenizer import Tokenizer

__all__ = ["TextIds"]

_UNKNOWN = "<unk>"


class TextIds:
    """Tokenizes texts, and puts the file's own first and last token around each. `most` is the longest text in ids.

    `specials` are the ids that stand for no text: those of control tokens, and the one for unknown text.
    The spelling of a control token in a text never becomes one.
    """

    def __init__(self, tokenizer: Tokenizer, most: int) -> None:
        framing = tokenizer.framing()
        if len(framing) != 2:
            raise CheckpointError(
                f"tokenizer.json puts the ids {framing} around a text: expected a first and a last one"
            )
        self._tokenizer = tokenizer
        self._first, self._last = framing
        self.specials = frozenset(tokenizer.specials.values())
        self._controls = frozenset(number for spelling, number in tokenizer.specials.items() if spelling != _UNKNOWN)
        self.most = most

    @classmethod
    def read(cls, found: Source, vocab_size: int, most: int) -> "TextIds":
        """Read the tokenizer of a model with this vocabulary; raises `CheckpointError`."""
        tokenizer = Tokenizer.read(found.folder / "tokenizer.json")
        if tokenizer.size > vocab_size:
            raise CheckpointError(
                f"tokenizer.json has {tokenizer.size} ids, the model {vocab_size}: it is another model's"
            )
        return cls(tokenizer, most)

    def of_text(self, text: str, *, truncate: bool) -> Ids:
        """Return the ids of a text; with `truncate` its end is cut if it is too long."""
        ids = self._tokenize(text)
        return (self._first, *(ids[: self.most - 2] if truncate else ids), self._last)

    def of_pair(self, query: str, document: str, *, truncate: bool) -> Ids:
        """Return the ids of a query and a document; with `truncate` the document's end is cut, never the query."""
        query_ids, ids = self._tokenize(query), self._tokenize(document)
        room = self.most - len(query_ids) - 4
        if room < 1:
            raise RequestInvalid(
                f"the query has {len(query_ids)} tokens: at most {self.most - 5}", Refusal.CONTEXT_OVERFLOW
            )
        ids = ids[:room] if truncate else ids
        return (self._first, *query_ids, self._last, self._last, *ids, self._last)

    def _tokenize(self, text: str) -> list[int]:
        try:
            text.encode()
        except UnicodeEncodeError as error:  # half a surrogate pair, which no tokenizer accepts
            raise RequestInvalid("a text is not valid Unicode") from error
        # a Unigram model has the spellings of its control tokens among its words
        return [token for token in self._tokenizer.tokenize(text) if token not in self._controls]
