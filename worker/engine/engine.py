"""The engine: requests in, outputs out, one step at a time. One thread at a time may call it."""

from collections.abc import Callable
from itertools import count
from secrets import randbits
from time import perf_counter

from worker.engine.batch import Batch, stage
from worker.engine.checks import RequestInvalid, check_request
from worker.engine.config import EngineConfig, count_pages
from worker.engine.pages import PagePool
from worker.engine.prompt import build_prompt
from worker.engine.request import Aborted, FinishReason, Output, Refusal, Refused, Request
from worker.engine.runner import HeadValues, Runner, collect
from worker.engine.scheduler import Chunk, Plan, Scheduler
from worker.engine.sequence import Sequence, Times
from worker.engine.skills import Reading, start_skill
from worker.engine.stats import Stats, Totals
from worker.model.moondream import Moondream

__all__ = ["Engine"]


class Engine:
    """Runs many requests at once; raises `ConfigError` when the model and the configuration cannot work."""

    def __init__(
        self, model: Moondream, config: EngineConfig | None = None, *, clock: Callable[[], float] = perf_counter
    ) -> None:
        self.config = config or EngineConfig()
        pages = count_pages(self.config, model)
        self._model = model
        self._clock = clock
        self._scheduler = Scheduler(self.config, PagePool(pages))
        self._runner = Runner(model, pages=pages, page_size=self.config.page_size, mark=self._mark)
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
        """Grows while a step gets on, with each layer of the model at the least; any thread may read it."""
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
        """Schedule, stage, run, sample, advance; returns what there is to tell, in order for each request."""
        started = self._clock()
        plan = self._scheduler.schedule()
        results = self._run(plan)
        self._mark()
        self._scheduler.commit(plan)
        outputs = self._take_outbox() + self._advance(collect(results))
        self._count(plan, started)
        return outputs

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
        has_image = request.crops is not None
        sequence = Sequence(
            request=request,
            skill=start_skill(request, ids=ids, tokenizer=tokenizer),
            arrival=next(self._arrivals),
            prefix_len=config.text.prefix_attn if has_image else 0,
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

    def _run(self, plan: Plan) -> list[HeadValues]:
        for chunk in plan.chunks:
            if chunk.sequence.times.started is None:
                chunk.sequence.times.started = self._clock()
        if plan.copies:
            self._runner.copy_pages(plan.copies)
        results = self._runner.prefill(self._stage(plan.prefills)) if plan.prefills else []
        return results + (self._runner.decode(self._stage(plan.decodes)) if plan.decodes else [])

    def _stage(self, chunks: tuple[Chunk, ...]) -> Batch:
        bos_id, device = self._model.config.tokenizer.bos_id, self._model.device
        return stage(chunks, page_size=self.config.page_size, bos_id=bos_id, device=device)

    def _advance(self, readings: dict[Sequence, Reading]) -> list[Output]:
        now = self._clock()
        return [output for sequence, reading in readings.items() for output in self._take(sequence, reading, now)]

    def _take(self, sequence: Sequence, reading: Reading, now: float) -> list[Output]:
        """Give a reading to the sequence's skill, and the skill's inputs to the sequence."""
        if sequence.times.first_token is None:
            sequence.times.first_token = now
        sequence.drawn += reading.token is not None
        advance = sequence.skill.advance(reading)
        reason = advance.reason
        if sequence.length + len(advance.inputs) > self._model.config.text.max_context:
            reason = reason or FinishReason.LENGTH
        if reason is None:
            sequence.inputs += advance.inputs
            return list(advance.outputs)
        return [*advance.outputs, *self._finish(sequence, reason, now)]

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
        assert plan.chunks or not self._scheduler.waiting, "nobody runs and somebody waits"
        if plan.chunks:
            self._totals = self._totals.with_step(plan, self._clock() - started)
