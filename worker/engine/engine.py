"""The engine: requests in, outputs out, one step at a time. One thread at a time may call it."""

from collections.abc import Callable
from itertools import count
from secrets import randbits
from time import perf_counter

from worker.engine.checks import RequestInvalid, check_request
from worker.engine.config import EngineConfig, count_pages
from worker.engine.pages import PagePool
from worker.engine.prompt import build_prompt
from worker.engine.readings import Readings
from worker.engine.request import Aborted, FinishReason, Output, Refusal, Refused, Request
from worker.engine.runner import Runner
from worker.engine.scheduler import Plan, Scheduler
from worker.engine.sequence import Sequence, Times
from worker.engine.skills import Advance, Ahead, Reading, start_skill
from worker.engine.stats import Stats, Totals
from worker.model import vision
from worker.model.fp8 import in_fp8
from worker.model.moondream import Moondream

__all__ = ["Engine"]


class Engine:
    """Runs many requests at once; raises `ConfigError` when the model and the configuration cannot work."""

    def __init__(
        self, model: Moondream, config: EngineConfig | None = None, *, clock: Callable[[], float] = perf_counter
    ) -> None:
        self.config = config or EngineConfig()
        # before the pages, which take what memory is left
        weights = in_fp8(model.weights) if self.config.fp8_linears else model.weights
        pages = count_pages(self.config, model)
        self._model = model
        self._clock = clock
        self._scheduler = Scheduler(self.config, PagePool(pages))
        self._runner = Runner(model, self.config, weights, pages=pages, mark=self._mark)
        self._looks_ahead = model.device.type == "cuda" if self.config.lookahead is None else self.config.lookahead
        self._ahead = Readings((), ())  # of the last step, if that was not waited for
        self._sequences: dict[str, Sequence] = {}
        self._outbox: list[Output] = []  # what is told without a step: refusals and aborts
        self._arrivals = count()
        self._totals = Totals()
        self._marks = 0

    @property
    def idle(self) -> bool:
        """Whether a step would do nothing."""
        return not self._sequences and not self._outbox

    @property
    def marks(self) -> int:
        """Grows while a step gets on: with each layer of the model, with each step where layers are captured.

        So on a GPU it stands still for as long as one step takes: that of `token_budget` positions and `crop_budget`
        crops, which at the usual budgets are tenths of a second. Any thread may read it.
        """
        return self._marks

    @property
    def stats(self) -> Stats:
        """What has been done and what is held."""
        return Stats.of(self._totals, self._scheduler)

    def submit(self, request: Request) -> None:
        """Take a request in; the next step may run it, or tell why it was refused. Ids in flight must differ."""
        if request.id in self._sequences:
            raise ValueError(f"request {request.id} is in flight already")
        try:
            sequence = self._open(request)
        except RequestInvalid as invalid:
            self._totals = self._totals.with_refused()
            self._outbox.append(Refused(request.id, invalid.refusal, str(invalid)))
            return
        self._sequences[request.id] = sequence
        self._scheduler.add(sequence)

    def abort(self, request_id: str) -> None:
        """End a request; does nothing if it has ended."""
        sequence = self._sequences.pop(request_id, None)
        if sequence is None:
            return
        self._scheduler.remove(sequence)
        self._totals = self._totals.with_aborted()
        self._outbox.append(Aborted(request_id))

    def step(self) -> list[Output]:
        """Schedule, stage, run, sample, advance; returns what there is to tell, in order for each request.

        Looking ahead, the outputs are those of the step before: the device has this one to go on with meanwhile.
        """
        started = self._clock()
        plan = self._scheduler.schedule()
        self._note_start(plan)
        readings = self._runner.run(plan)
        self._mark()
        self._scheduler.commit(plan)
        due = readings
        if self._looks_ahead:
            due, self._ahead = self._ahead, readings
        outputs = self._take_outbox() + self._advance(due)
        if self._looks_ahead:
            self._look_ahead(readings)
        self._count(plan, started)
        return outputs

    def warm_up(self) -> None:
        """Make ready now what else is made when first needed, which takes seconds on a GPU."""
        self._runner.warm_up()

    def check(self) -> None:
        """Assert that no page is lost; to be called when idle."""
        self._scheduler.pool.check()
        assert self._sequences or not self._scheduler.pool.used, "pages are held by nobody"

    def _mark(self) -> None:
        self._marks += 1

    def _open(self, request: Request) -> Sequence:
        config = self._model.config
        check_request(request, config)
        ids, tokenizer = config.tokenizer, self._model.tokenizer
        has_image = request.image is not None
        sequence = Sequence(
            request=request,
            skill=start_skill(request, ids=ids, tokenizer=tokenizer),
            arrival=next(self._arrivals),
            prefix_len=config.text.prefix_attn if has_image else 0,
            crops=vision.crops_to_encode(request.image, config.vision) if request.image is not None else 0,
            inputs=build_prompt(request.task, has_image=has_image, ids=ids, tokenizer=tokenizer),
            seed=randbits(63) if request.sampling.seed is None else request.sampling.seed,
            times=Times(submitted=self._clock()),
        )
        most = config.text.max_context - 1
        if sequence.length > most:
            raise RequestInvalid(
                f"the prompt has {sequence.length} tokens, image included: at most {most}", Refusal.CONTEXT_OVERFLOW
            )
        return sequence

    def _note_start(self, plan: Plan) -> None:
        for chunk in plan.prefills:
            if chunk.sequence.times.started is None:
                chunk.sequence.times.started = self._clock()

    def _advance(self, readings: Readings) -> list[Output]:
        found = list(readings.collect())
        now = self._clock()
        return [output for sequence, reading in found for output in self._take(sequence, reading, now)]

    def _take(self, sequence: Sequence, reading: Reading, now: float) -> list[Output]:
        """Give a reading to the sequence's skill, and the skill's inputs to the sequence."""
        if self._sequences.get(sequence.request.id) is not sequence:
            return []  # it was aborted after the step was started
        if sequence.times.first_token is None:
            sequence.times.first_token = now
        sequence.drawn += reading.token is not None
        expected, sequence.unread = sequence.unread, None
        advance = sequence.skill.advance(reading)
        reason = advance.reason
        if sequence.length + len(advance.inputs) > self._model.config.text.max_context:
            reason = reason or FinishReason.LENGTH
        if reason is not None:
            return [*advance.outputs, *self._finish(sequence, reason, now)]
        if expected is not None and not _is_as_expected(sequence, advance, expected):
            sequence.turn_back(sequence.length)
        sequence.inputs += advance.inputs
        return list(advance.outputs)

    def _look_ahead(self, readings: Readings) -> None:
        """Let the sequences of the step that was just started go on, fed with what the device is about to read."""
        for sequence in readings.sequences:
            alive = self._sequences.get(sequence.request.id) is sequence
            if alive and sequence.length < self._model.config.text.max_context:
                sequence.unread = sequence.skill.ahead

    def _finish(self, sequence: Sequence, reason: FinishReason, now: float) -> list[Output]:
        self._scheduler.remove(sequence)
        del self._sequences[sequence.request.id]
        usage = sequence.usage(now)
        self._totals = self._totals.with_finished(usage, image_hit=usage.cached_tokens >= sequence.prefix_len > 0)
        return list(sequence.skill.finish(reason, usage))

    def _take_outbox(self) -> list[Output]:
        outputs, self._outbox = self._outbox, []
        return outputs

    def _count(self, plan: Plan, started: float) -> None:
        # looking ahead, all that runs may be awaiting its last reading
        assert plan.chunks or not self._scheduler.waiting or self._looks_ahead, "nobody runs and somebody waits"
        if plan.chunks:
            self._totals = self._totals.with_step(plan, self._clock() - started)


def _is_as_expected(sequence: Sequence, advance: Advance, expected: Ahead) -> bool:
    """Say whether the step ahead was right about what it was fed and about what it reads."""
    skill = sequence.skill
    return len(advance.inputs) == 1 and (skill.heads, skill.suppressed) == (expected.heads, expected.suppressed)
