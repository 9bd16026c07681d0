"""A query: one token after another, spelled as numbers."""

from collections.abc import Sequence

from stoop_worker.engine.detokenizer import Detokenizer
from stoop_worker.engine.inputs import TokenInput
from stoop_worker.engine.request import Finished, FinishReason, Output, Request, TextDelta, Usage
from stoop_worker.engine.skill import Advance, Head, HeadValues, Lookahead
from tests.engine.toy_family.sizes import EOS

__all__ = ["Numbers", "QuerySkill"]


class Numbers:
    """A tokenizer whose tokens are numbers."""

    def detokenize(self, ids: list[int]) -> str:
        return "".join(f"{token} " for token in ids)

    def piece(self, token: int) -> str | None:
        return f"{token} "


class QuerySkill:
    """Writes until the end, a stop string, a stop id, or `max_tokens`."""

    heads = Head.TOKEN
    suppressed: tuple[int, ...] = ()
    rule: tuple[int, ...] = ()
    finishes_late = False
    greedy = False
    constraint = None

    def __init__(self, request: Request) -> None:
        sampling = request.sampling
        self._id = request.id
        self._most = sampling.max_tokens
        self._ends = {EOS, *sampling.stop_ids}
        self._text = Detokenizer(Numbers(), sampling.stop)
        self.output_tokens = 0

    @property
    def lookahead(self) -> Lookahead | None:
        return None if self.output_tokens + 1 == self._most else Lookahead()

    def advance(self, found: HeadValues) -> Advance:
        assert found.token is not None
        if found.token in self._ends:
            return Advance(reason=FinishReason.STOP)
        outputs = self._deltas(self._text.push(found.token))
        self.output_tokens += 1
        if self._text.stopped:
            return Advance(outputs=outputs, reason=FinishReason.STOP)
        if self.output_tokens == self._most:
            return Advance(outputs=outputs, reason=FinishReason.LENGTH)
        return Advance(inputs=(TokenInput(found.token),), outputs=outputs)

    def finish(self, reason: FinishReason, usage: Usage) -> Sequence[Output]:
        return [*self._deltas(self._text.flush()), Finished(self._id, reason, usage, text=self._text.text)]

    def _deltas(self, piece: str) -> tuple[Output, ...]:
        return (TextDelta(self._id, piece),) if piece else ()
