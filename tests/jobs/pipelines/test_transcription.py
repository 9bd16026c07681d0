"""The loop over the windows of a recording, with an engine that a test scripts."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest

from stoop_worker.audio import Recording, Span
from stoop_worker.engine.request import (
    Finished,
    FinishReason,
    Request,
    Sampling,
    Segment,
    Transcribe,
    Usage,
    Window,
    Word,
)
from stoop_worker.errors import AudioTooLarge
from stoop_worker.jobs.budget import Budget
from stoop_worker.jobs.pipelines import TEMPERATURES, Passage, Transcription, Windows, transcribe

USAGE = Usage(10, 5, 1, prefill_time_ms=2.0, decode_time_ms=3.0, ttft_ms=4.0)
SPOKEN = Window(
    language="de",
    language_probability=0.9,
    text=" Hallo.",
    tokens=(1, 7, 2),
    average_logprob=-0.2,
    no_speech=0.1,
    compression_ratio=0.9,
    segments=(Segment(0.0, 2.0, " Hallo.", (1, 7, 2)),),
    words=(),
    advance=30.0,
)
SILENT = replace(SPOKEN, segments=(Segment(0.0, 2.0, " Thanks.", (9,)),), average_logprob=-1.5, no_speech=0.9)
REPEATING = replace(SPOKEN, compression_ratio=3.0, average_logprob=-0.1)
GUESSED = replace(SPOKEN, average_logprob=-1.2)

Answer = Callable[[Request], Window]


async def each_of(recordings: Sequence[Recording]) -> AsyncIterator[Recording]:
    for each in recordings:
        yield each


class ScriptedSpeechEngine:
    """An engine that answers each window by `answer`, and keeps the requests."""

    def __init__(self, answer: Answer, reason: FinishReason = FinishReason.STOP) -> None:
        self.answer = answer
        self.reason = reason
        self.requests: list[Request] = []
        self.passages: list[Passage] = []
        self.report: Callable[[Passage], None] = self.passages.append

    async def run(self, request: Request) -> Finished:
        self.requests.append(request)
        return Finished(request.id, self.reason, USAGE, window=self.answer(request))

    async def hear(
        self, seconds: float, task: Transcribe | None = None, temperatures: tuple[float, ...] = TEMPERATURES
    ) -> Transcription:
        return await self.hear_spans([(0.0, seconds)], task, temperatures=temperatures)

    async def hear_spans(
        self,
        spans: Sequence[tuple[float, float]],
        task: Transcribe | None = None,
        *,
        temperatures: tuple[float, ...] = TEMPERATURES,
        at_once: int = 1,
        windows: Budget | None = None,
        priority: int = 0,
    ) -> Transcription:
        """Hear parts of a recording that ends with the last of them."""
        seconds = spans[-1][1]
        frames = np.arange(round(seconds * 100), dtype=np.float32)[None].repeat(2, axis=0)
        request = Request("job", task or Transcribe(), sampling=Sampling(temperature=0.0, top_p=1.0), priority=priority)
        cut = tuple(Span(round(100 * start), round(100 * stop)) for start, stop in spans)
        recording = Recording(frames, seconds, cut)
        allowed = Windows(windows or Budget(at_once), at_once > 1)
        parts = each_of([recording])
        return await transcribe(request, parts, temperatures, run=self.run, report=self.report, windows=allowed)

    @property
    def starts(self) -> list[float]:
        """The first frame of each request's window, which the recording has numbered."""
        return [float(request.media[0].frames[0, 0]) for request in self.requests]  # type: ignore[union-attr]

    @property
    def tasks(self) -> list[Transcribe]:
        return [request.task for request in self.requests if isinstance(request.task, Transcribe)]


async def test_windows_follow_each_other_with_offsets_and_the_last_is_short() -> None:
    engine = ScriptedSpeechEngine(lambda request: SPOKEN)
    found = await engine.hear(65.0)
    assert engine.starts == [0, 3000, 6000]
    assert [request.media[0].content for request in engine.requests] == [3000, 3000, 500]  # type: ignore[union-attr]
    assert [(each.segment.start, each.segment.end, each.seek) for each in found.passages] == [
        (0.0, 2.0, 0),
        (30.0, 32.0, 3000),
        (60.0, 62.0, 6000),
    ]
    assert (found.text, found.language, found.duration) == ("Hallo. Hallo. Hallo.", "de", 65.0)
    assert engine.passages == list(found.passages)
    assert (found.usage.output_tokens, found.usage.decode_time_ms, found.usage.ttft_ms) == (15, 9.0, 4.0)


async def test_the_next_window_begins_at_the_models_last_timestamp() -> None:
    advances = iter((12.34, 0.0, 30.0))
    engine = ScriptedSpeechEngine(lambda request: replace(SPOKEN, advance=next(advances)))
    await engine.hear(60.0)
    assert engine.starts == [0, 1234, 4234], "no advance at all would be an endless loop"


async def test_a_confusing_recording_costs_a_window_every_half_second_at_most() -> None:
    engine = ScriptedSpeechEngine(lambda request: replace(SPOKEN, advance=0.02))
    await engine.hear(3.0)
    assert engine.starts == [0, 50, 100, 150, 200, 250]


async def test_no_time_is_beyond_the_end_of_the_recording() -> None:
    engine = ScriptedSpeechEngine(lambda request: replace(SPOKEN, segments=(Segment(0.5, 30.0, " Hallo.", (7,)),)))
    found = await engine.hear(4.5)
    assert [(each.segment.start, each.segment.end) for each in found.passages] == [(0.5, 4.5)]


async def test_a_segment_after_the_end_is_dropped_unless_it_holds_all_words() -> None:
    late = (Segment(1.0, 2.0, " Ja.", (1,)), Segment(4.5, 6.0, " Nein.", (2,)), Segment(7.0, 9.0, " Danke.", (3,)))
    engine = ScriptedSpeechEngine(lambda request: replace(SPOKEN, segments=late))
    assert [each.segment.text for each in (await engine.hear(4.5)).passages] == [" Ja."]
    found = await engine.hear(0.5)
    [only] = found.passages
    assert (only.segment.start, only.segment.end, only.segment.text) == (0.0, 0.5, " Ja.")


async def test_no_segment_of_a_part_reaches_over_its_end() -> None:
    engine = ScriptedSpeechEngine(lambda request: replace(SPOKEN, segments=(Segment(0.0, 30.0, " Hallo.", (7,)),)))
    found = await engine.hear_spans([(1.0, 5.0), (20.0, 24.0)])
    assert [(each.segment.start, each.segment.end) for each in found.passages] == [(1.0, 5.0), (20.0, 24.0)]
    assert engine.starts == [100, 2000] and engine.tasks[1].history, "parts in turn know each other's text"


class HeldSpeechEngine(ScriptedSpeechEngine):
    """Answers a window only when the test releases it; the others may wait at the same time."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(answer)
        self.gates: dict[float, asyncio.Event] = {}
        self.asked = asyncio.Condition()
        self.running = self.most = 0

    async def run(self, request: Request) -> Finished:
        start = float(request.media[0].frames[0, 0])  # type: ignore[union-attr]
        gate = self.gates.setdefault(start, asyncio.Event())
        async with self.asked:
            self.requests.append(request)
            self.running += 1
            self.most = max(self.most, self.running)
            self.asked.notify_all()
        await gate.wait()
        self.running -= 1
        return Finished(request.id, self.reason, USAGE, window=self.answer(request))

    async def open(self, start: float) -> None:
        """Answer the window that begins at this frame, once it is there."""
        async with self.asked:
            await self.asked.wait_for(lambda: start in self.gates)
        self.gates[start].set()

    async def wait_for(self, count: int) -> None:
        async with self.asked:
            await self.asked.wait_for(lambda: len(self.requests) == count)


PARTS = [(0.0, 20.0), (20.0, 45.0), (45.0, 60.0), (60.0, 70.0)]


async def test_windows_run_concurrently_and_are_reported_in_order() -> None:
    engine = HeldSpeechEngine(lambda request: SPOKEN)
    transcribing = asyncio.create_task(engine.hear_spans(PARTS, Transcribe(language="de"), at_once=3))
    await engine.wait_for(3)
    assert sorted(engine.starts) == [0, 2000, 4500], "the fourth waits for a permit"
    await engine.open(4500)
    await engine.wait_for(4)
    await engine.open(0)
    await engine.open(6000)
    await engine.open(2000)
    found = await transcribing
    assert [(each.number, each.segment.start, each.seek) for each in found.passages] == [
        (0, 0.0, 0),
        (1, 20.0, 2000),
        (2, 45.0, 4500),
        (3, 60.0, 6000),
    ]
    assert engine.passages == list(found.passages) and found.text == "Hallo. Hallo. Hallo. Hallo."
    assert len({request.id for request in engine.requests}) == 4 and found.usage.output_tokens == 20
    assert {task.history for task in engine.tasks} == {()}


@pytest.mark.parametrize("at_once", [1, 4])
async def test_all_recordings_together_have_the_windows_of_one_budget(at_once: int) -> None:
    windows = Budget(2)
    engine = HeldSpeechEngine(lambda request: SPOKEN)
    german = Transcribe(language="de")
    transcripts = [
        asyncio.create_task(engine.hear_spans(PARTS, german, at_once=at_once, windows=windows)) for _ in range(3)
    ]
    for start, _ in PARTS:
        await engine.open(100 * start)
    assert [(await transcribing).text for transcribing in transcripts] == ["Hallo. Hallo. Hallo. Hallo."] * 3
    assert engine.most == windows.peak == 2 and windows.lent == 0


async def test_recordings_take_turns_however_many_spans_each_has() -> None:
    windows = Budget(1)
    engine = HeldSpeechEngine(lambda request: SPOKEN)
    german = Transcribe(language="de")
    first = asyncio.create_task(engine.hear_spans(PARTS, german, at_once=4, windows=windows))
    await engine.wait_for(1)
    second = asyncio.create_task(engine.hear_spans([(70.0, 75.0)], german, windows=windows))
    for start in (0, 2000, 4500, 6000, 7000):
        engine.gates.setdefault(start, asyncio.Event()).set()
    await asyncio.gather(first, second)
    assert engine.starts == [0, 2000, 7000, 4500, 6000], "only one window of the first recording was there before"


async def test_windows_that_end_early_are_given_back() -> None:
    windows = Budget(2)
    engine = HeldSpeechEngine(lambda request: SPOKEN)
    transcribing = asyncio.create_task(engine.hear_spans(PARTS, Transcribe(language="de"), at_once=4, windows=windows))
    await engine.wait_for(2)
    transcribing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await transcribing
    assert windows.lent == 0


async def test_a_passage_is_reported_as_soon_as_those_before_it_are() -> None:
    engine = HeldSpeechEngine(lambda request: SPOKEN)
    numbers: asyncio.Queue[int] = asyncio.Queue()
    engine.report = lambda passage: numbers.put_nowait(passage.number)
    transcribing = asyncio.create_task(engine.hear_spans(PARTS, Transcribe(language="de"), at_once=4))
    await engine.open(0)
    assert await numbers.get() == 0
    for start in (2000, 4500, 6000):
        assert numbers.empty()
        await engine.open(start)
        await numbers.get()
    await transcribing


async def test_the_first_window_finds_the_language_of_all() -> None:
    engine = HeldSpeechEngine(lambda request: SPOKEN)
    transcribing = asyncio.create_task(engine.hear_spans(PARTS, at_once=4))
    await engine.wait_for(1)
    for start, _ in PARTS:
        await engine.open(100 * start)
    assert (await transcribing).language == "de"
    assert [task.language for task in engine.tasks] == [None, "de", "de", "de"]


async def test_an_error_in_one_window_ends_all_others() -> None:
    class Broken(Exception):
        pass

    def answer(request: Request) -> Window:
        raise Broken

    engine = HeldSpeechEngine(answer)
    transcribing = asyncio.create_task(engine.hear_spans(PARTS, Transcribe(language="de"), at_once=2))
    await engine.open(2000)
    with pytest.raises(Broken):
        await transcribing
    assert not engine.gates[0].is_set(), "the first window had no answer yet"


async def test_a_transcript_without_end_is_refused() -> None:
    endless = replace(SPOKEN, segments=(Segment(0.0, 2.0, "Ha" * (1 << 20), (1,)),))
    with pytest.raises(AudioTooLarge, match="more than 16 MiB: cut the recording into parts"):
        await ScriptedSpeechEngine(lambda request: endless).hear(600.0)


async def test_less_than_a_tenth_of_a_second_gives_no_words() -> None:
    engine = ScriptedSpeechEngine(lambda request: SPOKEN)
    assert (await engine.hear(30.09)).passages and engine.starts == [0]
    empty = await engine.hear(0.05)
    assert (empty.text, empty.passages, empty.language, empty.usage.output_tokens) == ("", (), "", 0)


async def test_the_model_reads_its_own_words_and_keeps_the_language_and_the_prompt() -> None:
    engine = ScriptedSpeechEngine(lambda request: SPOKEN)
    await engine.hear(90.0, Transcribe(prompt="Kestrel"))
    assert [task.history for task in engine.tasks] == [(), (1, 7, 2), (1, 7, 2, 1, 7, 2)]
    assert [task.language for task in engine.tasks] == [None, "de", "de"]
    assert {task.prompt for task in engine.tasks} == {"Kestrel"}


async def test_history_does_not_grow_without_end() -> None:
    long = replace(SPOKEN, segments=(Segment(0.0, 2.0, " Hallo.", tuple(range(300))),))
    engine = ScriptedSpeechEngine(lambda request: long)
    await engine.hear(120.0)
    assert [len(task.history) for task in engine.tasks] == [0, 300, 448, 448]


@pytest.mark.parametrize("doubtful", [REPEATING, GUESSED])
async def test_a_doubtful_window_is_tried_again_until_it_is_plausible(doubtful: Window) -> None:
    engine = ScriptedSpeechEngine(lambda request: SPOKEN if request.sampling.temperature >= 0.4 else doubtful)
    found = await engine.hear(30.0)
    assert [request.sampling.temperature for request in engine.requests] == [0.0, 0.2, 0.4]
    assert [each.temperature for each in found.passages] == [0.4]
    assert found.usage.output_tokens == 15, "every attempt costs"
    assert len({request.media[0].digest for request in engine.requests}) == 1  # type: ignore[union-attr]


async def test_if_no_attempt_is_plausible_the_likeliest_that_does_not_repeat_itself_counts() -> None:
    odds = {0.0: -3.0, 0.2: -2.0, 0.4: -1.1, 0.6: -2.0, 0.8: -2.5, 1.0: -4.0}

    def answer(request: Request) -> Window:
        temperature = request.sampling.temperature
        ratio = 3.0 if temperature == 0.4 else 1.0
        return replace(SPOKEN, average_logprob=odds[temperature], compression_ratio=ratio)

    found = await ScriptedSpeechEngine(answer).hear(30.0)
    assert [each.temperature for each in found.passages] == [0.2]


async def test_a_text_from_a_high_temperature_is_not_read_again() -> None:
    temperatures = iter((0.0, 0.6))
    wanted = {}

    def answer(request: Request) -> Window:
        key = float(request.media[0].frames[0, 0])  # type: ignore[union-attr]
        wanted.setdefault(key, next(temperatures, 0.0))
        return SPOKEN if request.sampling.temperature >= wanted[key] else REPEATING

    engine = ScriptedSpeechEngine(answer)
    await engine.hear(90.0, Transcribe(prompt="Kestrel"))
    assert (engine.tasks[1].history, engine.tasks[1].prompt) == ((1, 7, 2), "Kestrel")
    assert (engine.tasks[-1].history, engine.tasks[-1].prompt) == ((), None)


async def test_a_text_is_not_read_again_if_no_attempt_was_plausible() -> None:
    def answer(request: Request) -> Window:
        odds = -1.2 if request.sampling.temperature == 0.2 else -2.0
        return replace(SPOKEN, average_logprob=odds)

    engine = ScriptedSpeechEngine(answer)
    found = await engine.hear(60.0, Transcribe(prompt="Kestrel"))
    assert [each.temperature for each in found.passages] == [0.2, 0.2]
    assert (engine.tasks[-1].history, engine.tasks[-1].prompt) == ((), None)


async def test_a_silent_window_has_no_words_and_no_second_attempt() -> None:
    engine = ScriptedSpeechEngine(lambda request: SILENT if request.media[0].frames[0, 0] == 0 else SPOKEN)  # type: ignore[union-attr]
    found = await engine.hear(60.0)
    assert engine.starts == [0, 3000]
    assert [each.seek for each in found.passages] == [3000]
    assert engine.tasks[1].history == ()


async def test_a_temperature_of_the_jobs_own_is_the_only_one() -> None:
    engine = ScriptedSpeechEngine(lambda request: REPEATING)
    found = await engine.hear(30.0, temperatures=(0.3,))
    assert [each.temperature for each in found.passages] == [0.3] and len(engine.requests) == 1


async def test_words_go_with_their_segments() -> None:
    words = (Word(" Ja.", 0.1, 0.5, 0.9), Word(" Nein", 2.1, 2.5, 0.8), Word(" doch.", 2.5, 3.2, 0.7))
    segments = (Segment(0.0, 2.0, " Ja.", (1,)), Segment(2.0, 4.0, " Nein doch.", (2, 3)))
    engine = ScriptedSpeechEngine(lambda request: replace(SPOKEN, segments=segments, words=words))
    found = await engine.hear(40.0)
    assert [[word.word for word in each.words] for each in found.passages] == 2 * [[" Ja."], [" Nein", " doch."]]
    assert [word.start for word in found.passages[3].words] == [32.1, 32.5]


async def test_a_word_out_of_order_is_given_once() -> None:
    words = (Word(" Ja.", 0.1, 0.5, 0.9), Word(" Nein", 2.1, 2.5, 0.8), Word(" doch.", 1.9, 3.2, 0.7))
    segments = (Segment(0.0, 2.0, " Ja.", (1,)), Segment(2.0, 4.0, " Nein doch.", (2, 3)))
    engine = ScriptedSpeechEngine(lambda request: replace(SPOKEN, segments=segments, words=words))
    found = await engine.hear(30.0)
    assert [[word.word for word in each.words] for each in found.passages] == [[" Ja."], [" Nein", " doch."]]


async def test_a_window_that_was_cut_short_shows_in_the_reason() -> None:
    engine = ScriptedSpeechEngine(lambda request: SPOKEN, FinishReason.LENGTH)
    assert (await engine.hear(30.0)).reason is FinishReason.LENGTH


async def test_an_error_of_the_engine_ends_the_loop() -> None:
    async def fail(request: Request) -> Finished:
        raise asyncio.CancelledError

    engine = ScriptedSpeechEngine(lambda request: SPOKEN)
    engine.run = fail  # type: ignore[method-assign]
    with pytest.raises(asyncio.CancelledError):
        await engine.hear(60.0)
    assert engine.passages == []


async def test_the_words_of_a_window_know_the_pause_before_it() -> None:
    spoken = replace(SPOKEN, words=(Word(" Hallo.", 1.0, 2.0, 0.9),))
    windows = iter((spoken, SILENT, spoken))
    engine = ScriptedSpeechEngine(lambda request: next(windows))
    await engine.hear(90.0, Transcribe(words=True))
    assert [task.pause for task in engine.tasks] == [0.0, 28.0, 58.0]
