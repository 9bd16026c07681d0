"""The engine of encoders: requests in, values of their texts out, one packed batch at a time.

It has the methods of `Engine`, so the same thread, process, watchdog and metrics run it. One thread at a time may call
it.
"""

from bisect import insort
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import count
from time import perf_counter

from stoop_worker.engine.checks import check_task
from stoop_worker.engine.config import EngineConfig
from stoop_worker.engine.device.text_runner import StartedTexts, TextRunner
from stoop_worker.engine.encoder import Encoder, Text, Values
from stoop_worker.engine.model import RequestInvalid
from stoop_worker.engine.request import Aborted, Finished, Output, Refusal, Refused, Request, Usage
from stoop_worker.engine.stats import Stats, Totals
from stoop_worker.engine.text_cache import TextCache

__all__ = ["BatchEngine", "TextRequest"]

_CACHE_BYTES = 64 << 20
_OVERTAKEN = 256
"""The number of later requests of the next earlier priority that may overtake one, so that none waits forever."""


@dataclass(slots=True, eq=False)
class TextRequest:
    """One request and the values found for its texts so far, by the number of the text.

    `asked` are the numbers of the texts whose values are found, or being computed.
    """

    request: Request
    texts: tuple[Text, ...]
    submitted: float
    arrival: int = -1
    started: float | None = None
    cached_tokens: int = 0
    asked: set[int] = field(default_factory=set)
    values: dict[int, Values] = field(default_factory=dict)

    @property
    def rank(self) -> int:
        """The place in the order of work."""
        return self.arrival + _OVERTAKEN * self.request.priority

    @property
    def open_texts(self) -> Iterator[tuple[int, Text]]:
        """The texts that no step has taken yet, with their numbers."""
        return ((number, text) for number, text in enumerate(self.texts) if number not in self.asked)

    @property
    def done(self) -> bool:
        """True if all texts have their values."""
        return len(self.values) == len(self.texts)


_Wanted = dict[Text, list[tuple[TextRequest, int]]]
"""Texts to run, with the requests that want them and the number that the text has in each."""


@dataclass(frozen=True, slots=True)
class _Batch:
    """A batch that the device works on."""

    wanted: _Wanted
    texts: list[Text]
    running: StartedTexts
    started: float


class BatchEngine:
    """Runs the texts of many requests at once; a request ends when all its texts have their values.

    A step takes texts in the order of priority and arrival, up to `token_budget` tokens; a longer text runs alone.
    Equal texts run once, and with `prefix_cache` a text seen before not at all.

    With `ahead`, the default on a GPU, a step starts the next batch before it waits for the one before, so that the
    device never waits for the host.
    """

    def __init__(
        self,
        model: Encoder,
        config: EngineConfig | None = None,
        *,
        clock: Callable[[], float] = perf_counter,
        ahead: bool | None = None,
    ) -> None:
        self.config = config or EngineConfig()
        self.max_context = min(model.spec.max_context, self.config.max_context)
        self._model = model
        self.clock = clock
        self._runner = TextRunner(model, on_progress=self._on_progress)
        self._cache = TextCache(_CACHE_BYTES if self.config.prefix_cache else 0)
        self._ahead = model.device.type != "cpu" if ahead is None else ahead
        self._running: deque[_Batch] = deque()  # by start
        self._ended = 0.0  # the time when the last batch ended
        self._waiting: list[TextRequest] = []  # by rank
        self._ids: set[str] = set()
        self._outbox: list[Output] = []  # refusals and aborts, which need no step
        self._arrivals = count()
        self._totals = Totals()
        self._progress = 0

    @property
    def idle(self) -> bool:
        """True if a step would do nothing."""
        return not self._waiting and not self._running and not self._outbox

    @property
    def progress(self) -> int:
        """A counter that grows with each layer of the model. Any thread may read it."""
        return self._progress

    @property
    def stats(self) -> Stats:
        """A snapshot of the work done and the requests held; an encoder has no pages."""
        running = sum(request.started is not None for request in self._waiting)
        waiting = len(self._waiting) - running
        return Stats(replace(self._totals), waiting=waiting, running=running, pages=0, pages_used=0, pages_idle=0)

    def submit(self, request: Request, submitted: float | None = None) -> None:
        """Accept a request, submitted now or at `submitted` by the clock; the next step may run or refuse it.

        Ids in flight must differ.
        """
        self.add(self.prepare(request, submitted))

    def prepare(self, request: Request, submitted: float | None = None) -> TextRequest | Refused:
        """Tokenize a request for `add`, submitted now or at `submitted` by the clock.

        This is slow, so any thread may call it.
        """
        submitted = self.clock() if submitted is None else submitted
        try:
            check_task(request.task, self._model.spec.tasks)
            texts = self._model.prepare_texts(request)
            self._check_lengths(texts)
        except RequestInvalid as invalid:
            return Refused(request.id, invalid.refusal, str(invalid))
        return TextRequest(request, texts, submitted)

    def compiles(self, request: Request) -> bool:
        """Return False: vectors and scores follow no grammar."""
        return False

    def add(self, prepared: TextRequest | Refused | Aborted) -> None:
        """Accept a prepared request; see `submit`."""
        if not isinstance(prepared, TextRequest):
            refused = isinstance(prepared, Refused)
            self._totals.refused += refused
            self._totals.aborted += not refused
            self._outbox.append(prepared)
            return
        if prepared.request.id in self._ids:
            raise ValueError(f"request {prepared.request.id} is in flight already")
        prepared.arrival = next(self._arrivals)
        self._ids.add(prepared.request.id)
        insort(self._waiting, prepared, key=lambda each: each.rank)

    def abort(self, request_id: str) -> None:
        """End a request; does nothing if it has ended."""
        if request_id not in self._ids:
            return
        self._ids.remove(request_id)
        self._waiting = [each for each in self._waiting if each.request.id != request_id]
        self._totals.aborted += 1
        self._outbox.append(Aborted(request_id))

    def step(self) -> list[Output]:
        """Choose texts and start them, wait for the oldest batch, and return the outputs of the requests that are done.

        A step that starts a batch while no other is running does not wait for it: the next step does.
        """
        started = self.clock()
        wanted = self._choose(started)
        if wanted:
            self._start(wanted, started)
        behind = 1 if self._ahead and wanted else 0
        if len(self._running) > behind:
            self._end_oldest()
        outputs, self._outbox = self._outbox, []
        return outputs + self._finish()

    def warm_up(self) -> None:
        """Do now the setup that the first steps would otherwise do, which takes seconds on a GPU."""
        self._runner.warm_up()

    def check(self) -> None:
        """Assert that nothing is lost. Call it only when idle."""
        assert self._ids == {each.request.id for each in self._waiting}
        assert not self._running
        self._cache.check()

    def _on_progress(self) -> None:
        self._progress += 1

    def _check_lengths(self, texts: tuple[Text, ...]) -> None:
        longest = max(len(text.ids) for text in texts)
        if longest > self.max_context:
            raise RequestInvalid(
                f"a text has {longest} tokens: at most {self.max_context}; shorten it, or set truncate to cut it",
                Refusal.CONTEXT_OVERFLOW,
            )

    def _choose(self, now: float) -> _Wanted:
        """Take the values of texts seen before, join those being computed, and return the texts to run."""
        wanted: _Wanted = {}
        room = self.config.token_budget
        for waiting in self._waiting:
            for number, text in list(waiting.open_texts):
                known = self._cache.get(text)
                others = wanted.get(text) or self._running_for(text)
                if known is not None or others is not None:
                    waiting.cached_tokens += len(text.ids)
                elif wanted and len(text.ids) > room:
                    return wanted
                waiting.started = now if waiting.started is None else waiting.started
                waiting.asked.add(number)
                if known is not None:
                    waiting.values[number] = known
                elif others is not None:
                    others.append((waiting, number))
                else:
                    room -= len(text.ids)
                    wanted[text] = [(waiting, number)]
        return wanted

    def _running_for(self, text: Text) -> list[tuple[TextRequest, int]] | None:
        return next((batch.wanted[text] for batch in self._running if text in batch.wanted), None)

    def _start(self, wanted: _Wanted, started: float) -> None:
        texts = sorted(wanted, key=lambda text: len(text.ids))  # attention runs texts of one length together
        self._running.append(_Batch(wanted, texts, self._runner.start(texts), started))

    def _end_oldest(self) -> None:
        batch = self._running.popleft()
        for text, values in zip(batch.texts, batch.running.values(), strict=True):
            self._cache.put(text, values)
            for wanting, number in batch.wanted[text]:
                wanting.values[number] = values
        self._on_progress()
        began, self._ended = max(batch.started, self._ended), self.clock()
        requests = {wanting.request.id for wantings in batch.wanted.values() for wanting, _ in wantings}
        tokens = sum(len(text.ids) for text in batch.texts)
        self._totals.add_texts(tokens, len(requests), self._ended - began)

    def _finish(self) -> list[Output]:
        done = [each for each in self._waiting if each.done]
        if not done:
            return []
        self._waiting = [each for each in self._waiting if not each.done]
        self._ids.difference_update(each.request.id for each in done)
        now = self.clock()
        usages = [_usage(each, now) for each in done]
        for usage in usages:
            self._totals.add_finished(usage, image_hit=False)
        return [self._answer(each, usage) for each, usage in zip(done, usages, strict=True)]

    def _answer(self, ended: TextRequest, usage: Usage) -> Finished:
        values = [ended.values[number] for number in range(len(ended.texts))]
        return self._model.answer(ended.request, ended.texts, values, usage)


def _usage(ended: TextRequest, now: float) -> Usage:
    return Usage(
        input_tokens=sum(len(text.ids) for text in ended.texts),
        output_tokens=0,
        cached_tokens=ended.cached_tokens,
        prefill_time_ms=1e3 * (now - (now if ended.started is None else ended.started)),
        decode_time_ms=0.0,
        ttft_ms=1e3 * (now - ended.submitted),
    )
