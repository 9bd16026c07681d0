"""The engine: requests in, outputs out, one step at a time. One thread at a time may call it."""

from collections.abc import Callable
from collections.abc import Sequence as Several
from itertools import count
from random import getrandbits
from time import perf_counter

from stoop_worker.engine.checks import check_request
from stoop_worker.engine.config import EngineConfig, KVMemory
from stoop_worker.engine.device.attention_choice import AttentionChoice
from stoop_worker.engine.device.heads import PendingHeads
from stoop_worker.engine.device.runner import Runner
from stoop_worker.engine.inputs import Input, MediaInput
from stoop_worker.engine.model import Model, RequestInvalid
from stoop_worker.engine.pages import PagePool
from stoop_worker.engine.request import Aborted, FinishReason, Output, Refusal, Refused, Request
from stoop_worker.engine.scheduler import Plan, Scheduler
from stoop_worker.engine.sequence import Sequence, Times
from stoop_worker.engine.skill import HeadValues, Lookahead, Skill
from stoop_worker.engine.stats import Stats, Totals

__all__ = ["Engine"]


class Engine:
    """Runs many requests at once; raises `ConfigError` when the model and the configuration cannot work."""

    def __init__(
        self, model: Model, config: EngineConfig | None = None, *, clock: Callable[[], float] = perf_counter
    ) -> None:
        self.config = config or EngineConfig()
        self.memory = KVMemory.of(self.config, model.spec, device=model.device, dtype=model.dtype)
        self._model = model
        self.clock = clock
        self._scheduler = Scheduler(self.config, PagePool(self.memory.pages))
        self._runner = Runner(model, self.config, self.memory, on_progress=self._on_progress)
        self._looks_ahead = model.device.type == "cuda" if self.config.lookahead is None else self.config.lookahead
        self._ahead = PendingHeads((), ())  # the last step's, if the engine has not waited for it
        self._sequences: dict[str, Sequence] = {}
        self._outbox: list[Output] = []  # refusals and aborts, which need no step
        self._arrivals = count()
        self._totals = Totals()
        self._progress = 0
        self.defer: Callable[[Callable[[], list[Output]]], None] | None = None
        """Takes the end of a sequence that would delay a step; without it, the step waits."""

    @property
    def max_context(self) -> int:
        """The longest sequence, in tokens."""
        return self.memory.max_context

    @property
    def attention(self) -> AttentionChoice:
        """The backends of attention, and why they were chosen."""
        return self._runner.attention

    @property
    def idle(self) -> bool:
        """True if a step would do nothing."""
        return not self._sequences and not self._outbox

    @property
    def progress(self) -> int:
        """A counter that grows with each layer of the model, or with each step if layers are captured.

        On a GPU it therefore stands still for one whole step of up to `token_budget` positions and `encode_budget` of
        media, which takes tenths of a second at the usual budgets. Any thread may read it.
        """
        return self._progress

    @property
    def stats(self) -> Stats:
        """A snapshot of the work done and the resources held."""
        return Stats.of(self._totals, self._scheduler)

    def submit(self, request: Request, submitted: float | None = None) -> None:
        """Accept a request, submitted now or at `submitted` by the clock; the next step may run or refuse it.

        Ids in flight must differ.
        """
        self.add(self.prepare(request, submitted))

    def prepare(self, request: Request, submitted: float | None = None) -> Sequence | Refused:
        """Prepare a request for `add`, submitted now or at `submitted` by the clock.

        Tokenizing makes this slow, so any thread may call it.
        """
        submitted = self.clock() if submitted is None else submitted
        try:
            check_request(request, self._model.spec)
            return self._open(request, submitted)
        except RequestInvalid as invalid:
            return Refused(request.id, invalid.refusal, str(invalid))

    def compiles(self, request: Request) -> bool:
        """Return whether `prepare` would compile a grammar, which can take a second. Any thread may call it."""
        return self._model.compiles(request)

    def add(self, prepared: Sequence | Refused | Aborted) -> None:
        """Accept a prepared request, or one that was aborted before it was prepared; see `submit`."""
        match prepared:
            case Refused():
                self._totals.refused += 1
                self._outbox.append(prepared)
            case Aborted():
                self._totals.aborted += 1
                self._outbox.append(prepared)
            case Sequence():
                if prepared.request.id in self._sequences:
                    raise ValueError(f"request {prepared.request.id} is in flight already")
                prepared.arrival = next(self._arrivals)
                self._sequences[prepared.request.id] = prepared
                self._scheduler.add(prepared)

    def abort(self, request_id: str) -> None:
        """End a request; does nothing if it has ended."""
        sequence = self._sequences.get(request_id)
        if sequence is None:
            return
        self._end(sequence)
        self._totals.aborted += 1
        self._outbox.append(Aborted(request_id))

    def step(self) -> list[Output]:
        """Schedule, stage, run, sample and advance; return the new outputs, in order for each request.

        With lookahead these are the previous step's outputs, because the device is still busy with this step.
        """
        started = self.clock()
        plan = self._scheduler.schedule()
        self._note_start(plan)
        running = self._runner.run(plan)
        self._on_progress()
        self._scheduler.commit(plan)
        # with nothing else to run, the last answers would wait for this thread to wake
        wakeful, awaited = not plan.chunks, running.is_late
        ready = self._ahead if self._looks_ahead else running.heads()
        outputs = self._take_outbox() + self._advance(ready.collect(wakeful=wakeful, awaited=awaited))
        if self._looks_ahead:
            self._ahead = running.heads()
            self._look_ahead(self._ahead)
        self._count(plan, started)
        return outputs

    def warm_up(self) -> None:
        """Do now the setup that the first steps would otherwise do, which takes seconds on a GPU."""
        self._runner.warm_up()

    def check(self) -> None:
        """Assert that no page is lost. Call it only when idle."""
        self._scheduler.pool.check()
        assert self._sequences or not self._scheduler.pool.used, "pages are used without a sequence"

    def _on_progress(self) -> None:
        self._progress += 1

    def _open(self, request: Request, submitted: float) -> Sequence:
        prepared = self._model.prepare(request)
        assert not isinstance(prepared.inputs[-1], MediaInput), "a prompt must not end with a medium"
        sequence = Sequence(
            request=request,
            skill=prepared.skill,
            inputs=list(prepared.inputs),
            seed=getrandbits(63) if request.sampling.seed is None else request.sampling.seed,
            media=prepared.media,
            positions=prepared.positions,
            two_way=prepared.two_way,
            on_end=prepared.on_end,
            times=Times(submitted),
        )
        most = self.memory.max_context - 1
        if sequence.length > most:
            prepared.on_end()
            raise RequestInvalid(
                f"the prompt has {sequence.length} tokens, image included: at most {most}", Refusal.CONTEXT_OVERFLOW
            )
        return sequence

    def _note_start(self, plan: Plan) -> None:
        for chunk in plan.prefills:
            if chunk.sequence.times.started is None:
                chunk.sequence.times.started = self.clock()

    def _advance(self, found: Several[tuple[Sequence, HeadValues]]) -> list[Output]:
        now = self.clock()
        outputs: list[Output] = []
        for sequence, values in found:
            outputs += self._take(sequence, values, now)
        return outputs

    def _take(self, sequence: Sequence, found: HeadValues, now: float) -> Several[Output]:
        """Give head values to the sequence's skill, and the skill's inputs to the sequence."""
        if sequence.ended:
            return ()  # it was aborted after the step started
        if sequence.times.first_token is None:
            sequence.times.first_token = now
        if found.token is not None:
            sequence.sampled.append(found.token)
        expected = sequence.stop_looking_ahead()
        inputs, outputs, reason = sequence.skill.advance(found)
        length = sequence.length
        if length + len(inputs) > self.memory.max_context:
            reason = reason or FinishReason.LENGTH
        if reason is not None:
            return [*_streamed(sequence, outputs), *self._finish(sequence, reason, now)]
        if expected is not None and not _is_as_expected(sequence.skill, inputs, expected):
            sequence.roll_back_to(length)
        sequence.add(inputs)
        return _streamed(sequence, outputs)

    def _look_ahead(self, heads: PendingHeads) -> None:
        """Extend the sequences of the step just started by the inputs that the device is about to read."""
        for sequence in heads.sequences:
            if not sequence.ended and sequence.length < self.memory.max_context:
                expected = sequence.skill.lookahead
                if expected is not None:
                    sequence.look_ahead(expected)

    def _finish(self, sequence: Sequence, reason: FinishReason, now: float) -> list[Output]:
        self._end(sequence)
        usage = sequence.usage(now)
        image_hit = bool(sequence.spans) and usage.cached_tokens >= sequence.spans[-1].end
        self._totals.add_finished(usage, image_hit=image_hit)

        def finish() -> list[Output]:
            *partial, last = sequence.skill.finish(reason, usage)
            return [*_streamed(sequence, partial), last]

        if self.defer is None or not sequence.skill.finishes_late:
            return finish()
        self.defer(finish)
        return []

    def _end(self, sequence: Sequence) -> None:
        sequence.ended = True
        self._scheduler.remove(sequence)
        del self._sequences[sequence.request.id]
        sequence.on_end()

    def _take_outbox(self) -> list[Output]:
        outputs, self._outbox = self._outbox, []
        return outputs

    def _count(self, plan: Plan, started: float) -> None:
        # with lookahead, every running sequence may be waiting for its last head values
        assert plan.chunks or not self._scheduler.waiting or self._looks_ahead, "sequences wait while none runs"
        if plan.chunks:
            self._totals.add_step(plan, self.clock() - started)


def _streamed(sequence: Sequence, partial: Several[Output]) -> Several[Output]:
    """Return the partial outputs that the request wants: all or none."""
    return partial if sequence.request.stream else ()


def _is_as_expected(skill: Skill, inputs: Several[Input], expected: Lookahead) -> bool:
    """Return whether the step ahead assumed the right input and heads."""
    return len(inputs) == 1 and skill.heads == expected.heads and skill.suppressed == expected.suppressed
