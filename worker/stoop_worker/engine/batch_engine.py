"""The engine of encoders: requests in, values of their texts out, one packed batch at a time.

It has the surface of `Engine`, so the same thread, process, watchdog and metrics run it. One thread at a time may call
it.
"""

from bisect import insort
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from time import perf_counter

from stoop_worker.engine.checks import check_task
from stoop_worker.engine.config import EngineConfig
from stoop_worker.engine.device.text_runner import TextRunner
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
    """One request and the values found for its texts so far, by the number of the text."""

    request: Request
    texts: tuple[Text, ...]
    submitted: float
    arrival: int = -1
    started: float | None = None
    cached_tokens: int = 0
    values: dict[int, Values] = field(default_factory=dict)

    @property
    def rank(self) -> int:
        """The place in the order of work."""
        return self.arrival + _OVERTAKEN * self.request.priority

    @property
    def open_texts(self) -> Iterator[tuple[int, Text]]:
        """The texts without values, with their numbers."""
        return ((number, text) for number, text in enumerate(self.texts) if number not in self.values)

    @property
    def done(self) -> bool:
        """True if all texts have their values."""
        return len(self.values) == len(self.texts)


class BatchEngine:
    """Runs the texts of many requests at once; a request ends when all its texts have their values.

    A step takes texts in the order of priority and arrival, up to `token_budget` tokens; a longer text runs alone.
    Equal texts run once, and with `prefix_cache` a text seen before not at all.
    """

    def __init__(
        self, model: Encoder, config: EngineConfig | None = None, *, clock: Callable[[], float] = perf_counter
    ) -> None:
        self.config = config or EngineConfig()
        self.max_context = min(model.spec.max_context, self.config.max_context)
        self._model = model
        self._clock = clock
        self._runner = TextRunner(model, on_progress=self._on_progress)
        self._cache = TextCache(_CACHE_BYTES if self.config.prefix_cache else 0)
        self._waiting: list[TextRequest] = []  # by rank
        self._ids: set[str] = set()
        self._outbox: list[Output] = []  # refusals and aborts, which need no step
        self._arrivals = count()
        self._totals = Totals()
        self._progress = 0

    @property
    def idle(self) -> bool:
        """True if a step would do nothing."""
        return not self._waiting and not self._outbox

    @property
    def progress(self) -> int:
        """A counter that grows with each layer of the model. Any thread may read it."""
        return self._progress

    @property
    def stats(self) -> Stats:
        """A snapshot of the work done and the requests held; an encoder has no pages."""
        running = sum(request.started is not None for request in self._waiting)
        waiting = len(self._waiting) - running
        return Stats(self._totals, waiting=waiting, running=running, pages=0, pages_used=0, pages_idle=0)

    def submit(self, request: Request) -> None:
        """Accept a request; the next step may run or refuse it. Ids in flight must differ."""
        self.add(self.prepare(request))

    def prepare(self, request: Request) -> TextRequest | Refused:
        """Tokenize a request for `add`. This is slow, so any thread may call it."""
        submitted = self._clock()
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
            self._totals = self._totals.with_refused() if refused else self._totals.with_aborted()
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
        self._totals = self._totals.with_aborted()
        self._outbox.append(Aborted(request_id))

    def step(self) -> list[Output]:
        """Choose texts, run them, and return the outputs of the requests that are done."""
        started = self._clock()
        batch = self._choose(started)
        if batch:
            self._run(batch, started)
        outputs, self._outbox = self._outbox, []
        return outputs + self._finish()

    def warm_up(self) -> None:
        """Do now the setup that the first steps would otherwise do, which takes seconds on a GPU."""
        self._runner.warm_up()

    def check(self) -> None:
        """Assert that nothing is lost. Call it only when idle."""
        assert self._ids == {each.request.id for each in self._waiting}
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

    def _choose(self, now: float) -> dict[Text, list[tuple[TextRequest, int]]]:
        """Take the values of texts seen before, and return the texts to run, with the requests that need them."""
        batch: dict[Text, list[tuple[TextRequest, int]]] = {}
        room = self.config.token_budget
        for waiting in self._waiting:
            for number, text in list(waiting.open_texts):
                known = self._cache.get(text)
                if known is not None or text in batch:
                    waiting.cached_tokens += len(text.ids)
                elif batch and len(text.ids) > room:
                    return batch
                waiting.started = now if waiting.started is None else waiting.started
                if known is not None:
                    waiting.values[number] = known
                    continue
                room -= 0 if text in batch else len(text.ids)
                batch.setdefault(text, []).append((waiting, number))
        return batch

    def _run(self, batch: dict[Text, list[tuple[TextRequest, int]]], started: float) -> None:
        texts = sorted(batch, key=lambda text: len(text.ids))  # attention runs texts of one length together
        for text, values in zip(texts, self._runner.run(texts), strict=True):
            self._cache.put(text, values)
            for wanting, number in batch[text]:
                wanting.values[number] = values
        self._on_progress()
        requests = {wanting.request.id for wantings in batch.values() for wanting, _ in wantings}
        self._totals = self._totals.with_texts(
            sum(len(text.ids) for text in texts), len(requests), self._clock() - started
        )

    def _finish(self) -> list[Output]:
        done = [each for each in self._waiting if each.done]
        self._waiting = [each for each in self._waiting if not each.done]
        return [self._finished(each, self._clock()) for each in done]

    def _finished(self, ended: TextRequest, now: float) -> Finished:
        self._ids.remove(ended.request.id)
        usage = Usage(
            input_tokens=sum(len(text.ids) for text in ended.texts),
            output_tokens=0,
            cached_tokens=ended.cached_tokens,
            prefill_time_ms=1e3 * (now - (now if ended.started is None else ended.started)),
            decode_time_ms=0.0,
            ttft_ms=1e3 * (now - ended.submitted),
        )
        self._totals = self._totals.with_finished(usage, image_hit=False)
        values = [ended.values[number] for number in range(len(ended.texts))]
        return self._model.answer(ended.request, ended.texts, values, usage)
