"""Scores of documents behind the engine's port."""

from collections.abc import Sequence

from stoop_worker.engine.config import EngineConfig
from stoop_worker.engine.encoder import Text, Values
from stoop_worker.engine.model import RequestInvalid
from stoop_worker.engine.request import Finished, FinishReason, Request, Rerank, Usage
from stoop_worker.models.encoders.loaded import Loaded, TextModel

__all__ = ["Reranker"]


class Reranker(TextModel):
    """Reads the query with each document, and scores how well the document answers it."""

    def __init__(self, loaded: Loaded) -> None:
        assert loaded.width == 1, "a score is one number"
        super().__init__(loaded, Rerank)

    def prepare_texts(self, request: Request) -> tuple[Text, ...]:
        """Pair the query with each document, and tokenize."""
        task = request.task
        assert isinstance(task, Rerank), "the engine refuses other tasks"
        if not task.documents:
            raise RequestInvalid("there is no document to score: give at least one")
        texts = self._loaded.texts
        return tuple(Text(texts.of_pair(task.query, each, truncate=task.truncate)) for each in task.documents)

    def rehearsal(self, config: EngineConfig) -> list[Request]:
        """Return a request for scores."""
        return [Request("warm-up", Rerank("warm up", self._warm_up_texts(config), truncate=True))]

    def answer(self, request: Request, texts: Sequence[Text], values: Sequence[Values], usage: Usage) -> Finished:
        """Return the scores in the order of the documents."""
        return Finished(request.id, FinishReason.STOP, usage, scores=tuple(float(value[0]) for value in values))
