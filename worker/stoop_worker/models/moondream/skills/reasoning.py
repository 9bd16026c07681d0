"""The reasoning before an answer, cut into chunks at the grounding markers.

The rules are those of Moondream's reference: a marker opens a new chunk and belongs to it; each chunk is
detokenized on its own; its coordinates pair up as points, and an odd last one is dropped.
"""

from dataclasses import dataclass, field

from stoop_worker.engine.detokenizer import Detokenizer
from stoop_worker.engine.inputs import Input, TokenInput
from stoop_worker.engine.request import GroundedSpan
from stoop_worker.engine.skill import HeadValues
from stoop_worker.models.loading.tokenizer import Tokenizer
from stoop_worker.models.moondream.config_parts import TokenizerConfig
from stoop_worker.models.moondream.values import coordinate_input, coordinate_of

__all__ = ["Reasoning"]


@dataclass(slots=True)
class _Chunk:
    detokenizer: Detokenizer
    coordinates: list[float] = field(default_factory=list)


class Reasoning:
    """Gathers reasoning tokens; `count` is their number."""

    def __init__(self, tokenizer: Tokenizer, ids: TokenizerConfig) -> None:
        self._tokenizer = tokenizer
        self._ids = ids
        self._chunks = [_Chunk(Detokenizer(tokenizer))]
        self.count = 0

    @property
    def text(self) -> str:
        """The text released so far."""
        return "".join(chunk.detokenizer.text for chunk in self._chunks)

    @property
    def grounding(self) -> tuple[GroundedSpan, ...]:
        """The spans of `text` that have points."""
        spans, start = [], 0
        for chunk in self._chunks:
            end = start + len(chunk.detokenizer.text)
            xs, ys = chunk.coordinates[::2], chunk.coordinates[1::2]
            if ys:
                spans.append(GroundedSpan(start, end, tuple(zip(xs, ys, strict=False))))
            start = end
        return tuple(spans)

    def take(self, found: HeadValues) -> tuple[Input, str]:
        """Take a token; return the model's next input, and the text that can be released."""
        assert found.token is not None
        token, ids, text = found.token, self._ids, ""
        if token in (ids.start_ground_points_id, ids.end_ground_id):
            text = self.flush()
            self._chunks.append(_Chunk(Detokenizer(self._tokenizer)))
        chunk = self._chunks[-1]
        text += chunk.detokenizer.push(token)
        self.count += 1
        if token != ids.coord_id:
            return TokenInput(token), text
        chunk.coordinates.append(coordinate_of(found))
        return coordinate_input(coordinate_of(found)), text

    def flush(self) -> str:
        """Return the text held back so far."""
        return self._chunks[-1].detokenizer.flush()
