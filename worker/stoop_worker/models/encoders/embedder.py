"""Vectors of texts behind the engine's port. N texts, V values of each."""

from collections.abc import Mapping, Sequence

import numpy as np

from stoop_worker.engine.config import EngineConfig
from stoop_worker.engine.encoder import Ids, Values
from stoop_worker.engine.model import RequestInvalid
from stoop_worker.engine.request import Embed, Finished, FinishReason, Request, Usage
from stoop_worker.models.encoders.loaded import Loaded, TextModel

__all__ = ["Embedder"]


class Embedder(TextModel):
    """Gives each text a vector of length 1.

    `prompts` are put before a text, by their names. A `shortens` model was trained so that the first values of a vector
    are a vector too.
    """

    def __init__(self, loaded: Loaded, *, prompts: Mapping[str, str] | None = None, shortens: bool = False) -> None:
        super().__init__(loaded, Embed)
        self._prompts = dict(prompts or {})
        self._shortens = shortens

    def prepare_texts(self, request: Request) -> tuple[Ids, ...]:
        """Put the prompt before each text, and tokenize."""
        task = request.task
        assert isinstance(task, Embed), "the engine refuses other tasks"
        if not task.texts:
            raise RequestInvalid("there is no text to embed: give at least one")
        self._check_dimensions(task.dimensions)
        prompt = self._prompt(task.prompt_name)
        return tuple(self._loaded.texts.of_text(prompt + text, truncate=task.truncate) for text in task.texts)

    def rehearsal(self, config: EngineConfig) -> list[Request]:
        """Return a request for vectors."""
        return [Request("warm-up", Embed(self._warm_up_texts(config), truncate=True))]

    def answer(self, request: Request, values: Sequence[Values], usage: Usage) -> Finished:
        """Shorten the vectors if the task asks for it, to vectors of length 1 again."""
        task = request.task
        assert isinstance(task, Embed), "the engine refuses other tasks"
        vectors = np.stack(values)
        if task.dimensions is not None and task.dimensions < self.spec.width:
            vectors = vectors[:, : task.dimensions]
            vectors = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
        packed = tuple(vector.astype("<f4").tobytes() for vector in vectors)
        return Finished(request.id, FinishReason.STOP, usage, vectors=packed)

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
