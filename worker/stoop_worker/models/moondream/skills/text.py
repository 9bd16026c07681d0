"""Query and caption: reasoning if requested, then the answer, each with its own budget."""

from collections.abc import Sequence

from stoop_worker.engine.detokenizer import Detokenizer
from stoop_worker.engine.grammars.constraint import Constraint, ends_text
from stoop_worker.engine.inputs import Input, token_input, token_inputs
from stoop_worker.engine.request import (
    Finished,
    FinishReason,
    Output,
    ReasoningDelta,
    Request,
    TextDelta,
    Usage,
)
from stoop_worker.engine.skill import Advance, Head, HeadValues, Lookahead
from stoop_worker.models.loading.tokenizer import Tokenizer
from stoop_worker.models.moondream.config_parts import TokenizerConfig
from stoop_worker.models.moondream.skills.reasoning import Reasoning
from stoop_worker.models.moondream.values import Fed

__all__ = ["TextSkill"]


class TextSkill:
    """Writes text; the first token of each phase is drawn from all tokens, the later ones from fewer.

    A request's stop strings and stop ids end only the answer, and only the answer follows its grammar.
    """

    greedy = False
    rule: tuple[int, ...] = ()
    finishes_late = False

    def __init__(
        self, request: Request, *, ids: TokenizerConfig, tokenizer: Tokenizer, constraint: Constraint | None = None
    ) -> None:
        self._id = request.id
        self._ids = ids
        self._max_tokens = request.sampling.max_tokens
        reasons = ids.reasons(request.task)
        self._reasoning = Reasoning(tokenizer, ids) if reasons else None
        self._answering = not reasons
        self._ends = frozenset((*ids.ends, *request.sampling.stop_ids))
        self._answer = Detokenizer(tokenizer, request.sampling.stop)
        self._answered = 0
        self._constraint = constraint

    @property
    def constraint(self) -> Constraint | None:
        """The grammar of the answer."""
        return self._constraint if self._answering else None

    @property
    def heads(self) -> Head:
        """The token and, in the reasoning, a coordinate."""
        # a coordinate in the reasoning is read from the hidden state that produced its token
        return Head.TOKEN if self._answering else Head.TOKEN | Head.VALUES

    @property
    def suppressed(self) -> tuple[int, ...]:
        """The ids that may not come next, because they would end the phase wrongly."""
        if self._answering:
            return self._later if self._answered else ()
        assert self._reasoning is not None
        return self._later if self._reasoning.count else ()

    @property
    def lookahead(self) -> Lookahead | None:
        """One more token of the same phase, or None at its last token."""
        if self._answering:
            last = self._answered + 1 == self._max_tokens
            return None if last else Lookahead(Fed.TOKEN, Head.TOKEN, self._later)
        assert self._reasoning is not None
        last = self._reasoning.count + 1 == self._max_tokens
        return None if last else Lookahead(Fed.COORDINATE_IF_MARKED, Head.TOKEN | Head.VALUES, self._later)

    @property
    def _later(self) -> tuple[int, ...]:
        """The ids that may not follow the first token of this phase."""
        ids = self._ids
        if not ids.suppress:
            return ()
        return (ids.answer_id,) if self._answering else (ids.eos_id, ids.size_id)

    @property
    def output_tokens(self) -> int:
        """The number of tokens in the reasoning and the answer, without those that end a phase."""
        return self._answered + (self._reasoning.count if self._reasoning else 0)

    def advance(self, found: HeadValues) -> Advance:
        """Take the next token."""
        return self._take_answer(found) if self._answering else self._take_reasoning(found)

    def finish(self, reason: FinishReason, usage: Usage) -> Sequence[Output]:
        """End; a request cut short in its reasoning has an empty answer."""
        outputs = self._close_reasoning() + self._deltas(TextDelta, self._answer.flush())
        reasoning = self._reasoning
        finished = Finished(
            self._id,
            reason,
            usage,
            text=self._answer.text,
            reasoning=reasoning.text if reasoning else None,
            grounding=reasoning.grounding if reasoning else (),
        )
        return [*outputs, finished if self._constraint is None else self._constraint.ending(finished)]

    def _take_answer(self, found: HeadValues) -> Advance:
        token = found.token
        assert token is not None
        if token in self._ends:
            return Advance(reason=FinishReason.STOP)
        outputs = self._deltas(TextDelta, self._answer.push(token))
        self._answered += 1
        if self._answer.stopped or ends_text(self._constraint, token):
            return Advance(outputs=outputs, reason=FinishReason.STOP)
        if self._answered == self._max_tokens:
            return Advance(outputs=outputs, reason=FinishReason.LENGTH)
        return Advance(inputs=(token_input(token),), outputs=outputs)

    def _take_reasoning(self, found: HeadValues) -> Advance:
        assert self._reasoning is not None
        if found.token == self._ids.answer_id:
            return self._start_answer(fed=())  # the token itself is not fed, because the suffix has the same meaning
        fed, text = self._reasoning.take(found)
        outputs = self._deltas(ReasoningDelta, text)
        if self._reasoning.count == self._max_tokens:
            return self._start_answer(fed=(fed,), outputs=outputs)
        return Advance(inputs=(fed,), outputs=outputs)

    def _start_answer(self, fed: tuple[Input, ...], outputs: tuple[Output, ...] = ()) -> Advance:
        outputs += self._close_reasoning()
        self._answering = True
        suffix = token_inputs(self._ids.templates.query.suffix)
        return Advance(inputs=(*fed, *suffix), outputs=outputs)

    def _close_reasoning(self) -> tuple[Output, ...]:
        return self._deltas(ReasoningDelta, self._reasoning.flush()) if self._reasoning else ()

    def _deltas(self, kind: type[TextDelta] | type[ReasoningDelta], text: str) -> tuple[Output, ...]:
        return (kind(self._id, text),) if text else ()
