"""The reasoning before an answer, cut into chunks at the grounding markers.

The rules are those of Moondream's reference: a marker opens a new chunk and belongs to it; each chunk is
detokenized on its own; its coordinates pair up as points, an odd last one is dropped.
"""

from dataclasses import dataclass, field

from worker.engine.detokenizer import Detokenizer
from worker.engine.inputs import CoordinateInput, Input, TokenInput
from worker.engine.request import GroundedSpan
from worker.engine.skills.protocol import Reading
from worker.model.config import TokenizerConfig
from worker.model.tokenizer import Tokenizer

__all__ = ["Reasoning"]


@dataclass(slots=True)
class _Chunk:
    detokenizer: Detokenizer
    coordinates: list[float] = field(default_factory=list)


class Reasoning:
    """Gathers reasoning tokens; `count` is how many it took."""

    def __init__(self, tokenizer: Tokenizer, ids: TokenizerConfig) -> None:
        self._tokenizer = tokenizer
        self._ids = ids
        self._chunks = [_Chunk(Detokenizer(tokenizer))]
        self.count = 0

    @property
    def text(self) -> str:
        """All that has been given out so far."""
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

    def take(self, reading: Reading) -> tuple[Input, str]:
        """Take a token in; return what it is fed as, and the text that can be given out."""
        assert reading.token is not None
        token, ids, text = reading.token, self._ids, ""
        if token in (ids.start_ground_points_id, ids.end_ground_id):
            text = self.flush()
            self._chunks.append(_Chunk(Detokenizer(self._tokenizer)))
        chunk = self._chunks[-1]
        text += chunk.detokenizer.push(token)
        self.count += 1
        if token != ids.coord_id:
            return TokenInput(token), text
        assert reading.coordinate is not None
        chunk.coordinates.append(reading.coordinate)
        return CoordinateInput(reading.coordinate), text

    def flush(self) -> str:
        """Give out what is held back."""
        return self._chunks[-1].detokenizer.flush()
