"""Steps that read their heads late, because a text in them follows a grammar, beside sequences that roll back."""

from collections.abc import Mapping

from stoop_worker.engine.request import Finished, Grammar, Output, Query, Request, Sampling
from tests.engine.micro import LIVELY, drain, ending, micro_moondream, small_engine


def test_a_sequence_that_rolls_back_beside_a_grammar_answers_as_it_does_alone() -> None:
    """The end of a reasoning rolls back, after the step ahead has started and before its heads are read."""
    model = micro_moondream(LIVELY)
    form = Sampling(temperature=0.0, max_tokens=60, grammar=Grammar(regex=".{200}"))
    constrained = Request("form", Query("red"), (), form)
    sampling = Sampling(temperature=1.0, max_tokens=20, seed=0)
    others = [Request(asked, Query(asked, reasoning=True), (), sampling) for asked in ("red circle", "blue one")]
    alone = {each.id: answer(drain(small_engine(model, lookahead=False), [each]), each.id) for each in others}
    together = drain(small_engine(model, lookahead=True), [constrained, *others])
    assert {each.id: answer(together, each.id) for each in others} == alone
    assert answer(together, "form")[0]


def answer(received: Mapping[str, list[Output]], name: str) -> tuple[str, str | None]:
    found = ending(received, name)
    assert isinstance(found, Finished)
    return found.text, found.reasoning
