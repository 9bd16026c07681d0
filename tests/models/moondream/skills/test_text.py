from stoop_worker.engine.inputs import TokenInput
from stoop_worker.engine.request import (
    Caption,
    Finished,
    FinishReason,
    Query,
    ReasoningDelta,
    Request,
    Sampling,
    Task,
    TextDelta,
    Usage,
)
from stoop_worker.engine.skill import Advance, Head, HeadValues
from stoop_worker.models.moondream.config_parts import TokenizerConfig
from stoop_worker.models.moondream.skills import TextSkill, start_skill
from stoop_worker.models.moondream.values import coordinate_input

EOS, ANSWER, COORD, START, END = 0, 3, 5, 7, 9
USAGE = Usage(0, 0, 0, 0.0, 0.0, 0.0)


class CharacterTokenizer:
    """Ids from 32 on are characters, the others are control tokens."""

    def detokenize(self, ids: list[int]) -> str:
        return "".join(chr(token) for token in ids if token >= 32)

    def piece(self, token: int) -> str | None:
        return self.detokenize([token])


def skill(task: Task, max_tokens: int = 50, *, stop: tuple[str, ...] = (), stop_ids: tuple[int, ...] = ()) -> TextSkill:
    request = Request("a", task, (), Sampling(max_tokens=max_tokens, stop=stop, stop_ids=stop_ids))
    started = start_skill(request, ids=TokenizerConfig(), tokenizer=CharacterTokenizer())  # type: ignore[arg-type]
    assert isinstance(started, TextSkill)
    return started


def read(text: TextSkill, *tokens: int | str, coordinate: float = 0.5) -> Advance:
    """Let the skill read tokens, or the letters of strings; return its last advance."""
    last = Advance()
    for token in tokens:
        for one in map(ord, token) if isinstance(token, str) else [token]:
            last = text.advance(HeadValues(one, (coordinate, 0.0, 0.0)))
    return last


def finish(text: TextSkill) -> Finished:
    *_, finished = text.finish(FinishReason.STOP, USAGE)
    assert isinstance(finished, Finished)
    return finished


def test_an_answer_ends_at_eos_which_is_not_part_of_it() -> None:
    text = skill(Caption())
    assert not text.greedy and text.heads == Head.TOKEN
    assert read(text, "a") == Advance(inputs=(TokenInput(ord("a")),))
    assert read(text, " ").outputs == (TextDelta("a", "a "),)
    assert read(text, "b", EOS) == Advance(reason=FinishReason.STOP)
    finished = Finished("a", FinishReason.STOP, USAGE, text="a b")
    assert text.finish(FinishReason.STOP, USAGE) == [TextDelta("a", "b"), finished]
    assert text.output_tokens == 3


def test_the_answer_token_is_suppressed_after_the_first_token() -> None:
    text = skill(Query("?"))
    assert text.suppressed == ()
    read(text, "a")
    assert text.suppressed == (ANSWER,)


def test_the_limit_of_tokens_ends_an_answer_without_another_step() -> None:
    text = skill(Query("?"), max_tokens=2)
    assert read(text, "ab") == Advance(reason=FinishReason.LENGTH)
    assert finish(text).text == "ab"


def test_reasoning_goes_before_the_answer_and_its_end_is_not_fed() -> None:
    text = skill(Query("?", reasoning=True))
    assert text.heads == Head.TOKEN | Head.VALUES
    assert text.suppressed == ()
    assert read(text, "hm") == Advance(inputs=(TokenInput(ord("m")),))
    assert text.suppressed == (EOS, 6)
    assert read(text, ANSWER) == Advance((TokenInput(ANSWER),), (ReasoningDelta("a", "hm"),))
    assert text.heads == Head.TOKEN and text.suppressed == ()
    read(text, "yes")
    assert finish(text) == Finished("a", FinishReason.STOP, USAGE, text="yes", reasoning="hm")
    assert text.output_tokens == 5


def test_reasoning_and_answer_come_in_types_of_their_own() -> None:
    text = skill(Query("?", reasoning=True))
    outputs = [*read(text, "I ").outputs]
    read(text, "see")
    outputs += [*read(text, ANSWER).outputs, *read(text, "so ").outputs]
    read(text, "it")
    outputs += text.finish(FinishReason.STOP, USAGE)
    # `==` cannot tell the two kinds of deltas apart, because they are tuples
    assert [type(output) for output in outputs] == [ReasoningDelta, ReasoningDelta, TextDelta, TextDelta, Finished]


def test_reasoning_at_its_limit_gets_the_suffix_and_the_answer_has_its_own_budget() -> None:
    text = skill(Query("?", reasoning=True), max_tokens=2)
    last = read(text, "hm")
    assert last == Advance((TokenInput(ord("m")), TokenInput(ANSWER)), (ReasoningDelta("a", "hm"),))
    assert read(text, "ab").reason is FinishReason.LENGTH
    assert finish(text).text == "ab"


def test_a_coordinate_at_the_limit_is_fed_as_a_coordinate() -> None:
    text = skill(Query("?", reasoning=True), max_tokens=1)
    assert read(text, COORD, coordinate=0.25).inputs == (coordinate_input(0.25), TokenInput(ANSWER))


def test_markers_open_chunks_and_coordinates_pair_up_in_them() -> None:
    text = skill(Query("?", reasoning=True))
    read(text, "I see ", START, "4 horses")
    assert read(text, COORD, coordinate=0.25).inputs == (coordinate_input(0.25),)
    for value in (0.5, 0.75, 1.0, 0.125):
        read(text, COORD, coordinate=value)
    read(text, END, ".", COORD, ANSWER, "4", EOS)
    finished = finish(text)
    assert finished.reasoning == "I see 4 horses."
    (span,) = finished.grounding
    assert (span.start, span.end) == (6, 14)
    # the odd fifth is dropped, and so is the lone one of the next chunk
    assert span.points == ((0.25, 0.5), (0.75, 1.0))


def test_a_first_token_may_be_a_coordinate_or_even_eos() -> None:
    text = skill(Query("?", reasoning=True))
    assert read(text, COORD, coordinate=0.25).inputs == (coordinate_input(0.25),)
    other = skill(Query("?", reasoning=True))
    assert read(other, EOS) == Advance(inputs=(TokenInput(EOS),))


def test_reasoning_cut_short_has_an_empty_answer() -> None:
    text = skill(Query("?", reasoning=True))
    read(text, "so far")
    outputs = text.finish(FinishReason.LENGTH, USAGE)
    finished = Finished("a", FinishReason.LENGTH, USAGE, reasoning="so far")
    assert outputs == [ReasoningDelta("a", "far"), finished]
    assert isinstance(outputs[0], ReasoningDelta)


def test_a_stop_string_ends_an_answer_and_is_no_part_of_it() -> None:
    text = skill(Query("?"), stop=("END",))
    last = read(text, "yes EN")
    assert last.reason is None
    assert read(text, "D").reason is FinishReason.STOP
    assert finish(text).text == "yes "


def test_a_stop_id_ends_an_answer_like_the_models_own_end() -> None:
    text = skill(Query("?"), stop_ids=(ord("!"),))
    assert read(text, "yes!") == Advance(reason=FinishReason.STOP)
    assert finish(text).text == "yes"


def test_reasoning_ignores_stop_strings() -> None:
    text = skill(Query("?", reasoning=True), stop=("hm",), stop_ids=(ord("!"),))
    assert read(text, "hm!").reason is None
    read(text, ANSWER, "so", "hm")
    assert (finish(text).text, finish(text).reasoning) == ("so", "hm!")
