"""Vectors of texts behind the engine's port. N texts, V values of a vector."""

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from stoop_worker.engine.config import EngineConfig
from stoop_worker.engine.encoder import Ids, Text, Values
from stoop_worker.engine.model import RequestInvalid
from stoop_worker.engine.request import (
    Embed,
    Finished,
    FinishReason,
    Request,
    SparseVector,
    TokenVectors,
    Usage,
    VectorKind,
)
from stoop_worker.models.encoders.loaded import Loaded, TextModel

__all__ = ["COLBERT_BYTES", "Embedder"]

_DENSE: Final = (VectorKind.DENSE,)

COLBERT_BYTES: Final = 8 << 20
"""Most bytes of all ColBERT vectors of a request. They are large: 4 KB a token of bge-m3."""


class Embedder(TextModel):
    """Gives each text a vector of length 1 and, if the network can, the weights and the vectors of its tokens.

    `prompts` are put before a text, by their names. A `shortens` model was trained so that the first values of a vector
    are a vector too.
    """

    def __init__(self, loaded: Loaded, *, prompts: Mapping[str, str] | None = None, shortens: bool = False) -> None:
        super().__init__(loaded, Embed)
        self._prompts = dict(prompts or {})
        self._shortens = shortens

    def prepare_texts(self, request: Request) -> tuple[Text, ...]:
        """Put the prompt before each text, and tokenize."""
        task = request.task
        assert isinstance(task, Embed), "the engine refuses other tasks"
        if not task.texts:
            raise RequestInvalid("there is no text to embed: give at least one")
        self._check_dimensions(task.dimensions)
        self._check_kinds(task.kinds)
        prompt = self._prompt(task.prompt_name)
        texts = [self._loaded.texts.of_text(prompt + text, truncate=task.truncate) for text in task.texts]
        if VectorKind.COLBERT in task.kinds:
            self._check_tokens(sum(map(len, texts)))
        return tuple(Text(ids, task.kinds) for ids in texts)

    def rehearsal(self, config: EngineConfig) -> list[Request]:
        """Return a request for vectors."""
        return [Request("warm-up", Embed(self._warm_up_texts(config), truncate=True))]

    def answer(self, request: Request, texts: Sequence[Text], values: Sequence[Values], usage: Usage) -> Finished:
        """Return the vectors of each kind. Dense ones are shortened if the task asks for it."""
        task = request.task
        assert isinstance(task, Embed), "the engine refuses other tasks"
        found = [(text.ids, self._split(text, each)) for text, each in zip(texts, values, strict=True)]
        dense, sparse, colbert = VectorKind.DENSE, VectorKind.SPARSE, VectorKind.COLBERT
        return Finished(
            request.id,
            FinishReason.STOP,
            usage,
            vectors=tuple(_shortened(parts[dense], task.dimensions) for _, parts in found if dense in parts),
            sparse=tuple(self._sparse(ids, parts[sparse]) for ids, parts in found if sparse in parts),
            colbert=tuple(
                TokenVectors(len(ids) - 1, _packed(parts[colbert])) for ids, parts in found if colbert in parts
            ),
        )

    def _split(self, text: Text, values: Values) -> dict[VectorKind, Values]:
        """Return the values of each kind."""
        if text.kinds == _DENSE:
            return {VectorKind.DENSE: values}
        count, width = len(text.ids), self.spec.width
        counts = {VectorKind.DENSE: width, VectorKind.SPARSE: count, VectorKind.COLBERT: (count - 1) * width}
        ends = np.cumsum([counts[kind] for kind in text.kinds])
        assert ends[-1] == len(values)
        return dict(zip(text.kinds, np.split(values, ends[:-1]), strict=True))

    def _sparse(self, ids: Ids, weights: Values) -> SparseVector:
        """Return the largest weight of each id, unless it is 0 or the id stands for no text.

        bge-m3's lexical weights, as FlagEmbedding computes them.
        """
        known, places = np.unique(np.array(ids), return_inverse=True)
        most = np.zeros(len(known), np.float32)
        np.maximum.at(most, places, weights)
        found = [(number, weight) for number, weight in zip(known.tolist(), most.tolist(), strict=True) if weight > 0]
        found = [(number, weight) for number, weight in found if number not in self._loaded.texts.specials]
        return SparseVector(tuple(number for number, _ in found), tuple(weight for _, weight in found))

    def _check_kinds(self, kinds: Sequence[VectorKind]) -> None:
        missing = [kind for kind in kinds if kind not in self._loaded.kinds]
        if missing:
            raise RequestInvalid(f"this model has no {missing[0]} vectors: it has {', '.join(self._loaded.kinds)}")

    def _check_tokens(self, tokens: int) -> None:
        most = COLBERT_BYTES // (4 * self.spec.width)
        if tokens > most:
            raise RequestInvalid(
                f"the texts have {tokens} tokens together: at most {most} with colbert vectors; send"
                " fewer texts in a job"
            )

    def _check_dimensions(self, dimensions: int | None) -> None:
        if dimensions is None or dimensions == self.spec.width:
            return
        if not self._shortens:
            raise RequestInvalid(f"this model's vectors have {self.spec.width} dimensions: leave dimensions out")
        if not 1 <= dimensions < self.spec.width:
            raise RequestInvalid(f"dimensions is {dimensions}: it must be from 1 to {self.spec.width}")

    def _prompt(self, name: str | None) -> str:
        if name is None:
            return ""
        if name not in self._prompts:
            known = f"known are {', '.join(sorted(self._prompts))}" if self._prompts else "this model has none"
            raise RequestInvalid(f"there is no prompt named {name[:64]!r}: {known}")
        return self._prompts[name]


def _shortened(vector: Values, dimensions: int | None) -> bytes:
    """Return the first values as a vector of length 1 again."""
    if dimensions is not None and dimensions < len(vector):
        vector = vector[:dimensions]
        vector = vector / max(float(np.linalg.norm(vector)), 1e-12)
    return _packed(vector)


def _packed(values: Values) -> bytes:
    return values.astype("<f4").tobytes()
