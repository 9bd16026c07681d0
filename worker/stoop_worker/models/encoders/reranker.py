"""Scores of documents behind the engine's port."""

from collections.abc import Sequence

from torch import Tensor

from stoop_worker.engine.config import EngineConfig
from stoop_worker.engine.encoder import EncoderSpec, Ids, Values
from stoop_worker.engine.model import RequestInvalid
from stoop_worker.engine.request import Finished, FinishReason, Request, Rerank, Usage
from stoop_worker.engine.tensors import PackedTexts
from stoop_worker.models.encoders.loaded import Loaded

__all__ = ["Reranker"]


class Reranker:
    """Reads the query with each document, and scores how well the document answers it."""

    def __init__(self, loaded: Loaded) -> None:
        assert loaded.width == 1, "a score is one number"
        self._loaded = loaded
        self.spec = EncoderSpec((Rerank,), 1, loaded.vocab_size, loaded.texts.most)
        self.name = loaded.name
        self.digest = loaded.digest
        self.untrained = loaded.untrained
        self.device = loaded.device
        self.dtype = loaded.dtype

    def prepare_texts(self, request: Request) -> tuple[Ids, ...]:
        """Pair the query with each document, and tokenize."""
        task = request.task
        assert isinstance(task, Rerank), "the engine refuses other tasks"
        if not task.documents:
            raise RequestInvalid("there is no document to score: give at least one")
        texts = self._loaded.texts
        return tuple(texts.of_pair(task.query, document, truncate=task.truncate) for document in task.documents)

    def rehearsal(self, config: EngineConfig) -> list[Request]:
        """Return documents; on a GPU they fill a step, which shows that a full step fits into memory."""
        length = min(config.token_budget, self.spec.max_context) if self.device.type != "cpu" else 1
        count = config.token_budget // length if length > 1 else 1
        documents = tuple(f"{number} " + "warm up " * length for number in range(count))
        return [Request("warm-up", Rerank("warm up", documents, truncate=True))]

    def encode_texts(self, packed: PackedTexts) -> Tensor:
        """Return the scores."""
        return self._loaded.network(packed)

    def answer(self, request: Request, values: Sequence[Values], usage: Usage) -> Finished:
        """Return the scores in the order of the documents."""
        return Finished(request.id, FinishReason.STOP, usage, scores=tuple(float(value[0]) for value in values))
