"""Who runs in a step, and with which pages. Policy only: it knows neither tensors nor time.

Every running sequence has pages for all its known positions. A sequence with one pending position decodes in
every step; one with more prefills under the token budget, oldest first. What waits is admitted in the order of
arrival. When pages run out the youngest goes back to wait: the oldest always gets on, so all end.
"""

from bisect import insort
from collections.abc import Iterator
from dataclasses import dataclass, field

from worker.engine.config import EngineConfig
from worker.engine.pages import PagePool
from worker.engine.prefix_cache import Match, PrefixCache
from worker.engine.sequence import NO_SEAT, Sequence

__all__ = ["Chunk", "Plan", "Scheduler"]


@dataclass(frozen=True, slots=True)
class Chunk:
    """Positions [start, end) of a sequence, to be computed in one step."""

    sequence: Sequence
    start: int
    end: int

    @property
    def has_image(self) -> bool:
        """Whether the image prefix, always whole, is part of it."""
        return self.start < self.sequence.prefix_len

    @property
    def reads(self) -> bool:
        """Whether it reaches the last known position, so that the heads are read after it."""
        return self.end == self.sequence.length


@dataclass(frozen=True, slots=True)
class Plan:
    """One step: `copies` are (from, to) pages, made before anything is computed."""

    prefills: tuple[Chunk, ...]
    decodes: tuple[Chunk, ...]
    copies: tuple[tuple[int, int], ...]
    preempted: int

    @property
    def chunks(self) -> tuple[Chunk, ...]:
        """All there is to compute."""
        return self.prefills + self.decodes


@dataclass(slots=True)
class _Draft:
    """A plan in the making, and what is left of the step's budgets."""

    tokens: int
    crops: int
    prefills: list[Chunk] = field(default_factory=list)
    decodes: list[Chunk] = field(default_factory=list)
    copies: list[tuple[int, int]] = field(default_factory=list)
    encoding: set[bytes] = field(default_factory=set)
    preempted: list[Sequence] = field(default_factory=list)


class Scheduler:
    """Moves sequences between waiting and running, and pages between them, the pool and the cache."""

    def __init__(self, config: EngineConfig, pool: PagePool) -> None:
        self.pool = pool
        self.waiting: list[Sequence] = []  # by arrival
        self.running: list[Sequence] = []  # by arrival
        self._config = config
        self._seats = list(range(config.max_batch - 1, -1, -1))
        self._cache = PrefixCache(pool, config.page_size) if config.prefix_cache else None

    def add(self, sequence: Sequence) -> None:
        """Let a sequence wait; it must fit the pool when it runs alone."""
        insort(self.waiting, sequence, key=_arrival)

    def remove(self, sequence: Sequence) -> None:
        """Forget a sequence, wherever it is, and take its pages back."""
        (self.waiting if sequence.seat == NO_SEAT else self.running).remove(sequence)
        self._strip(sequence)

    def schedule(self) -> Plan:
        """Choose what the next step computes."""
        draft = _Draft(tokens=self._config.token_budget, crops=self._config.crop_budget)
        self._grow(draft)
        self._continue(draft)
        self._admit(draft)
        # the copies are made before anything else is written, so their sources may go from now on
        self.pool.release(source for source, _ in draft.copies)
        return Plan(tuple(draft.prefills), tuple(draft.decodes), tuple(draft.copies), len(draft.preempted))

    def commit(self, plan: Plan) -> None:
        """Take note that the plan's positions are in the pages, or will be before any later step reads them."""
        for chunk in plan.chunks:
            sequence = chunk.sequence
            sequence.cached_len = chunk.end
            if self._cache and chunk.start < sequence.prompt_len:
                prompt = sequence.inputs[: min(chunk.end, sequence.prompt_len) - sequence.prefix_len]
                self._cache.insert(sequence.digest, sequence.prefix_len, prompt, sequence.pages)

    def _grow(self, draft: _Draft) -> None:
        """Give every running sequence pages for its new positions, the oldest first."""
        served = 0
        while served < len(self.running):
            if self._cover(self.running[served]):
                served += 1
            else:
                draft.preempted.append(self.running[-1])
                self._preempt(self.running[-1])

    def _continue(self, draft: _Draft) -> None:
        decoding = [sequence for sequence in self.running if sequence.pending == 1]
        draft.decodes = [Chunk(sequence, sequence.cached_len, sequence.length) for sequence in decoding]
        draft.tokens -= len(decoding)
        if decoding:
            draft.crops = min(draft.crops, self._config.stall_crops)
        for sequence in self.running:
            if sequence.pending > 1 and draft.tokens > 0:
                self._prefill(sequence, draft)

    def _admit(self, draft: _Draft) -> None:
        for sequence in self._candidates(draft):
            match = self._match(sequence)
            if not self._affords(sequence, match, draft) or not self._house(sequence, match, draft):
                return
            self.waiting.remove(sequence)
            insort(self.running, sequence, key=_arrival)
            sequence.seat = self._seats.pop()
            if not match.length and sequence.digest is not None:
                draft.crops -= sequence.crops
                draft.encoding.add(sequence.digest)
            if sequence.hit_len is None:
                sequence.hit_len = match.length
            self._prefill(sequence, draft)

    def _candidates(self, draft: _Draft) -> Iterator[Sequence]:
        """Yield who may be admitted; one whose image this very plan encodes had better hit the cache next step."""
        for sequence in list(self.waiting):
            if len(self.running) == self._config.max_batch or draft.tokens <= 0:
                return
            if sequence in draft.preempted:
                return  # it may be under way still, and would be read twice: the next step knows what it is fed
            if not (self._cache and sequence.digest in draft.encoding):
                yield sequence

    def _match(self, sequence: Sequence) -> Match:
        # the last position is always computed: its hidden state is what the heads read
        return self._cache.match(sequence.digest, sequence.inputs, sequence.length - 1) if self._cache else Match()

    def _affords(self, sequence: Sequence, match: Match, draft: _Draft) -> bool:
        """Say whether the budgets allow the image prefix, if it is to be computed."""
        if not sequence.prefix_len or match.length:
            return True
        if not draft.prefills and not draft.encoding:
            return True  # an image too large for any step has one to itself
        return sequence.prefix_len <= draft.tokens and sequence.crops <= draft.crops

    def _house(self, sequence: Sequence, match: Match, draft: _Draft) -> bool:
        """Give a sequence its pages, shared, copied and new, if that leaves each running one a page to grow."""
        shared = [*match.pages] if match.partial is None else [*match.pages, match.partial]
        self.pool.retain(shared)
        new = self._pages_for(sequence.length) - len(match.pages)
        if new + len(self.running) > self.pool.free + self.pool.idle:
            self.pool.release(shared)
            return False
        sequence.pages = [*match.pages, *self._allocate(new)]
        sequence.cached_len = match.length
        if match.partial is not None:
            draft.copies.append((match.partial, sequence.pages[len(match.pages)]))
        return True

    def _prefill(self, sequence: Sequence, draft: _Draft) -> None:
        start = sequence.cached_len
        end = min(sequence.length, max(start + draft.tokens, sequence.prefix_len))
        draft.prefills.append(Chunk(sequence, start, end))
        draft.tokens -= end - start

    def _preempt(self, sequence: Sequence) -> None:
        self.running.remove(sequence)
        self._strip(sequence)
        self.add(sequence)

    def _strip(self, sequence: Sequence) -> None:
        self.pool.release(sequence.pages)
        sequence.pages = []
        sequence.cached_len = 0
        if sequence.seat != NO_SEAT:
            self._seats.append(sequence.seat)
            sequence.seat = NO_SEAT

    def _cover(self, sequence: Sequence) -> bool:
        """Give a sequence pages for all it knows; False when there are not enough."""
        new = self._pages_for(sequence.length) - len(sequence.pages)
        if new > self.pool.free + self.pool.idle:
            return False
        sequence.pages += self._allocate(new)
        return True

    def _allocate(self, count: int) -> list[int]:
        if self._cache and self.pool.free < count:
            self._cache.make_room(count)
        return self.pool.allocate(count)

    def _pages_for(self, length: int) -> int:
        return -(-length // self._config.page_size)


def _arrival(sequence: Sequence) -> int:
    return sequence.arrival
