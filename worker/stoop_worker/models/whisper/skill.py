"""The transcribe skill: the language, then one id after another until the end of the window's words."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import exp

from stoop_worker.engine.inputs import token_input, token_inputs
from stoop_worker.engine.request import (
    Finished,
    FinishReason,
    Output,
    Request,
    Segment,
    Transcribe,
    Usage,
    Window,
    Word,
)
from stoop_worker.engine.skill import Advance, Head, HeadValues, Lookahead
from stoop_worker.models.loading.tokenizer import Tokenizer
from stoop_worker.models.whisper.alignment import Alignment
from stoop_worker.models.whisper.prompt import task_ids
from stoop_worker.models.whisper.rules import NONE, Mode, Rule
from stoop_worker.models.whisper.segments import compression_ratio, cut, is_heard, text_of, uncut
from stoop_worker.models.whisper.vocabulary import ENGLISH, Vocabulary
from stoop_worker.models.whisper.words import split, timed_words, words_of_segments

__all__ = ["Align", "TranscribeSkill"]

Align = Callable[[Sequence[int], Sequence[int]], Alignment]
"""Takes the ids before a window's text and those of the text; returns the times of the latter."""


class TranscribeSkill:
    """Draws at most `most` ids, and calls `align` at the end if the request wants the times of words.

    With each id its log-probability and the probability of silence are read. A model of several languages detects the
    language first, from the hidden state of the start; a request that names its language does so too, because silence
    is detected in the same step.
    """

    heads = Head.TOKEN | Head.VALUES
    suppressed: tuple[int, ...] = ()
    constraint = None

    def __init__(
        self,
        request: Request,
        task: Transcribe,
        vocabulary: Vocabulary,
        tokenizer: Tokenizer,
        *,
        most: int,
        align: Align,
    ) -> None:
        self._id = request.id
        self._task = task
        self._ids = vocabulary
        self._tokenizer = tokenizer
        self._align = align
        self._most = min(request.sampling.max_tokens, most)
        self._mode = Mode.TIMED if task.timestamps else Mode.TEXT
        # a model of one language reads its first timestamp where others read the language
        self._starting = bool(vocabulary.languages) or not task.timestamps
        self._language, self._language_probability = task.language or ENGLISH, 1.0
        self._no_speech: float | None = None
        self._tokens: list[int] = []
        self._stamp = NONE
        self._logprobs = 0.0
        self.output_tokens = 0

    @property
    def greedy(self) -> bool:
        """True while the language is read, which is the likeliest one at any temperature."""
        return self._starting

    @property
    def rule(self) -> tuple[int, ...]:
        """The ids that the timestamp rules need."""
        if self._starting:
            return Rule(Mode.LANGUAGE)
        before, last = (NONE, NONE, *self._tokens)[-2:]
        return Rule(self._mode, before, last, self._stamp)

    @property
    def lookahead(self) -> Lookahead | None:
        """One more id; None before the text, and at the last id."""
        if self._starting or len(self._tokens) + 1 == self._most:
            return None
        before, last = (NONE, NONE, *self._tokens)[-2:]
        return Lookahead(heads=self.heads, rule=Rule(self._mode, before, last, self._stamp, pending=1))

    @property
    def finishes_late(self) -> bool:
        """True if words are wanted: they need the window's states again, and a path through a matrix."""
        return self._task.words

    def advance(self, found: HeadValues) -> Advance:
        """Take the language, or the next id."""
        assert found.token is not None
        logprob, no_speech = found.values
        if self._no_speech is None:
            self._no_speech = no_speech
        if self._starting:
            return self._start(found.token, logprob)
        self._logprobs += logprob
        if found.token == self._ids.end:
            return Advance(reason=FinishReason.STOP)
        self._tokens.append(found.token)
        self.output_tokens += 1
        if self._ids.is_stamp(found.token):
            self._stamp = found.token
        if self.output_tokens == self._most:
            return Advance(reason=FinishReason.LENGTH)
        return Advance(inputs=(token_input(found.token),))

    def finish(self, reason: FinishReason, usage: Usage) -> Sequence[Output]:
        """End with the window's transcript."""
        window = self._window()
        return [Finished(self._id, reason, usage, text=window.text, window=window)]

    def _start(self, language: int, logprob: float) -> Advance:
        self._starting = False
        if self._ids.languages and self._task.language is None:
            self._language = next(code for code, token in self._ids.languages.items() if token == language)
            self._language_probability = exp(logprob)
        return Advance(inputs=tuple(token_inputs(task_ids(self._language, self._task, self._ids))))

    def _window(self) -> Window:
        found = (cut if self._task.timestamps else uncut)(self._tokens, self._ids, self._tokenizer)
        placed = self._placed(found.segments) if self._task.words else [(each, ()) for each in found.segments]
        # what follows the last word may belong to the next window
        last = next((words[-1].end for _, words in reversed(placed) if words), 0.0)
        advance = last if last and found.open_ended else found.advance
        # a word that the alignment gives no time is kept if the model gave its segment one
        heard = [
            each for each, drawn in zip(placed, found.segments, strict=True) if is_heard(drawn) or is_heard(each[0])
        ]
        text = text_of(self._tokens, self._ids, self._tokenizer).strip()
        return Window(
            language=self._language,
            language_probability=self._language_probability,
            text=text,
            tokens=tuple(self._tokens),
            average_logprob=self._logprobs / (len(self._tokens) + 1),
            no_speech=self._no_speech or 0.0,
            compression_ratio=compression_ratio(text),
            segments=tuple(segment for segment, _ in heard),
            words=tuple(word for _, words in heard for word in words),
            advance=advance,
        )

    def _placed(self, segments: tuple[Segment, ...]) -> list[tuple[Segment, tuple[Word, ...]]]:
        """Return each segment, its borders moved to fit its words, with its words.

        The words of segments without a length are placed too: they may lengthen it, and the words around them are
        found beside them.
        """
        end = self._ids.end
        text = [token for segment in segments for token in segment.tokens if token < end]
        pieces = split(text, self._language, self._tokenizer)
        if not pieces:
            return [(segment, ()) for segment in segments]
        spoken = replace(self._task, timestamps=False)
        before = [self._ids.start, *task_ids(self._language, spoken, self._ids)]
        words = timed_words(pieces, self._align(before, text))
        return words_of_segments(segments, pieces, words, text_below=end, pause=self._task.pause)
