"""Chooses the sequences of each step and their pages. Policy only: it knows neither tensors nor time.

Every running sequence has pages for all its known indices. A sequence with one pending index decodes in every step; one
with more prefills under the token budget. Sequences are ranked by priority, and within a priority by arrival. A
sequence that too many later ones have overtaken moves up. Waiting sequences are admitted by rank. If pages run out, the
last in rank goes back to waiting: the first always advances, so all finish. While a sequence of an earlier priority
runs, media and prompts of later priorities are computed only now and then, because such a step is long and delays the
next token of every sequence. A step of later priorities alone is kept short, because a request of the first may come at
any time.

A prefill may end before or after a medium, never inside it. It includes the medium if the step's budgets allow. A
medium that exceeds them by itself runs first in a step.
"""

from array import array
from bisect import insort
from dataclasses import dataclass, field
from itertools import count
from typing import Final, NamedTuple

from stoop_worker.engine.config import EngineConfig
from stoop_worker.engine.pages import PagePool
from stoop_worker.engine.prefix_cache import Match, PrefixCache
from stoop_worker.engine.sequence import NO_SEAT, MediaSpan, Sequence

__all__ = ["Chunk", "Plan", "Scheduler"]

_LAST: Final = 1 << 30  # a priority later than any
_OVERTAKEN: Final = 256
"""The number of later requests of the next earlier priority that may overtake one, so that none waits forever."""


class Chunk(NamedTuple):
    """The indices [start, end) of a sequence, to be computed in one step."""

    sequence: Sequence
    start: int
    end: int

    @property
    def media(self) -> tuple[MediaSpan, ...]:
        """The media inside the chunk."""
        return self.sequence.spans_in(self.start, self.end)

    @property
    def is_last(self) -> bool:
        """True if the chunk reaches the last known index, so that the heads are read after it."""
        return self.end == self.sequence.length


@dataclass(frozen=True, slots=True)
class Plan:
    """One step: `copies` are (from, to) pages, copied before anything is computed."""

    prefills: tuple[Chunk, ...]
    decodes: tuple[Chunk, ...]
    copies: tuple[tuple[int, int], ...]
    preempted: int

    @property
    def chunks(self) -> tuple[Chunk, ...]:
        """All chunks to compute."""
        return self.prefills + self.decodes


@dataclass(slots=True)
class _Draft:
    """An unfinished plan, and the rest of the step's budgets."""

    tokens: int
    cost: int  # of media to encode
    prefills: list[Chunk] = field(default_factory=list)
    decodes: list[Chunk] = field(default_factory=list)
    copies: list[tuple[int, int]] = field(default_factory=list)
    encoding: set[tuple[int, bytes]] = field(default_factory=set)  # the starts of media, and their digests
    # how later priorities yield: the first priority that runs, how many sequences run behind priority 0, whether
    # their prefills are put off, and whether any was
    first: int = _LAST
    behind: int = 0
    yields: bool = False
    put_off: bool = False
    preempted: list[Sequence] = field(default_factory=list)

    def reach(self, sequence: Sequence, start: int) -> int:
        """Return how far the budgets let a sequence be computed from `start` on."""
        end = min(sequence.length, start + self.tokens)
        cost, first = self.cost, not self.prefills
        for span in sequence.spans_in(start, end):
            alone = first and span.start == start
            if not alone and (span.end > end or span.fed.cost > cost):
                return span.start
            cost, end = cost - span.fed.cost, max(end, span.end)
        return end

    def add(self, chunk: Chunk) -> None:
        """Take a prefill into the plan."""
        self.prefills.append(chunk)
        self.tokens -= chunk.end - chunk.start
        for span in chunk.media:
            self.cost -= span.fed.cost
            self.encoding.add((span.start, span.fed.digest))

    def encodes(self, sequence: Sequence, start: int, end: int) -> bool:
        """Return whether the plan encodes, for another sequence, a medium that this one has at the same index."""
        return any((span.start, span.fed.digest) in self.encoding for span in sequence.spans_in(start, end))


class Scheduler:
    """Moves sequences between waiting and running, and pages between them, the pool and the cache."""

    def __init__(self, config: EngineConfig, pool: PagePool) -> None:
        self.pool = pool
        self.waiting: list[Sequence] = []  # by rank
        self.running: list[Sequence] = []  # by rank
        self._yielded = 0  # steps in a row that put off a prefill for an earlier priority
        self._config = config
        self._seats = list(range(config.max_batch - 1, -1, -1))
        self._stays = count()
        self._cache = PrefixCache(pool, config.page_size) if config.prefix_cache else None

    def add(self, sequence: Sequence) -> None:
        """Add a sequence to the waiting ones; it must fit the pool when it runs alone."""
        insort(self.waiting, sequence, key=_rank)

    def remove(self, sequence: Sequence) -> None:
        """Remove a waiting or running sequence, and take its pages back."""
        (self.waiting if sequence.seat == NO_SEAT else self.running).remove(sequence)
        self._free(sequence)

    def schedule(self) -> Plan:
        """Choose the next step's work."""
        draft = _Draft(tokens=self._config.token_budget, cost=self._config.encode_budget)
        self._grow_all(draft)
        self._rank_running(draft)
        self._continue(draft)
        self._admit(draft)
        self._yielded = self._yielded + 1 if draft.put_off else 0
        # the copies precede all other writes, so their sources may be released now
        self.pool.release(source for source, _ in draft.copies)
        return Plan(tuple(draft.prefills), tuple(draft.decodes), tuple(draft.copies), len(draft.preempted))

    def commit(self, plan: Plan) -> None:
        """Record that the plan's indices are in the pages, or will be before any later step reads them."""
        for sequence, start, end in plan.chunks:
            sequence.cached_len = end
            if start < sequence.prompt_len and self._cache:
                known = sequence.input_at(min(end, sequence.prompt_len))
                self._cache.insert(sequence.inputs[:known], sequence.pages)

    def _grow_all(self, draft: _Draft) -> None:
        """Give every running sequence pages for its new indices, the oldest first."""
        served, size = 0, self._config.page_size
        while served < len(self.running):
            sequence = self.running[served]
            if sequence.length <= len(sequence.pages) * size or self._grow(sequence):
                served += 1
            else:
                draft.preempted.append(self.running[-1])
                self._preempt(self.running[-1])

    def _rank_running(self, draft: _Draft) -> None:
        priorities = [sequence.request.priority for sequence in self.running]
        draft.first = min(priorities, default=_LAST)
        draft.behind = len(priorities) - priorities.count(0)
        draft.yields = self._yielded < self._config.yield_steps
        if draft.first and all(sequence.request.priority for sequence in self.waiting):
            draft.cost = min(draft.cost, self._config.late_budget)
        if not draft.yields:
            draft.cost = 0  # one medium, then the other sequences get their turn

    def _continue(self, draft: _Draft) -> None:
        prefilling: list[Sequence] = []
        new = tuple.__new__  # twice as fast as the class itself
        for sequence in self.running:
            start, end = sequence.cached_len, sequence.length
            if end == start + 1:
                draft.decodes.append(new(Chunk, (sequence, start, end)))
            elif end > start:
                prefilling.append(sequence)
        draft.tokens -= len(draft.decodes)
        if draft.decodes:
            draft.cost = min(draft.cost, self._config.stall_budget)
        for sequence in prefilling:
            if draft.tokens > 0 and not self._yields(sequence, draft):
                end = draft.reach(sequence, sequence.cached_len)
                if end > sequence.cached_len:
                    draft.add(Chunk(sequence, sequence.cached_len, end))

    def _admit(self, draft: _Draft) -> None:
        for sequence in list(self.waiting):
            if len(self.running) == self._config.max_batch or draft.tokens <= 0:
                return
            if self._yields(sequence, draft) or not self._leaves_seats(sequence, draft):
                continue
            if sequence in draft.preempted:
                return  # its input may still be pending, and would be read twice: the next step knows the input
            match = self._match(sequence)
            end = draft.reach(sequence, match.length)
            if self._cache and draft.encodes(sequence, match.length, max(end, match.length + 1)):
                continue  # in the next step it can hit the cache
            if end == match.length or not self._allocate_for(sequence, match, draft):
                return
            self.waiting.remove(sequence)
            insort(self.running, sequence, key=_rank)
            sequence.seat = self._seats.pop()
            sequence.stay = next(self._stays)
            draft.first = min(draft.first, sequence.request.priority)
            draft.behind += sequence.request.priority > 0
            if sequence.hit_len is None:
                sequence.hit_len = match.length
            draft.add(Chunk(sequence, match.length, end))

    def _yields(self, sequence: Sequence, draft: _Draft) -> bool:
        """Return whether a prefill is put off because a sequence of an earlier priority runs."""
        put_off = draft.yields and draft.first < sequence.request.priority
        draft.put_off |= put_off
        return put_off

    def _leaves_seats(self, sequence: Sequence, draft: _Draft) -> bool:
        """Return whether the seats kept for priority 0 stay free."""
        return not sequence.request.priority or draft.behind < self._config.max_batch - self._config.seats_kept

    def _match(self, sequence: Sequence) -> Match:
        # the last index is always computed: its hidden state is what the heads read
        return self._cache.match(sequence.inputs, sequence.length - 1) if self._cache else Match()

    def _allocate_for(self, sequence: Sequence, match: Match, draft: _Draft) -> bool:
        """Give a sequence its shared, copied and new pages, if each running sequence still has a page to grow."""
        shared = [*match.pages] if match.partial is None else [*match.pages, match.partial]
        self.pool.retain(shared)
        new = self._pages_for(sequence.length) - len(match.pages)
        if new + len(self.running) > self.pool.free + self.pool.idle:
            self.pool.release(shared)
            return False
        sequence.pages = array("i", [*match.pages, *self._allocate(new)])
        sequence.cached_len = match.length
        if match.partial is not None:
            draft.copies.append((match.partial, sequence.pages[len(match.pages)]))
        return True

    def _preempt(self, sequence: Sequence) -> None:
        self.running.remove(sequence)
        self._free(sequence)
        self.add(sequence)

    def _free(self, sequence: Sequence) -> None:
        self.pool.release(sequence.pages)
        sequence.pages = array("i")
        sequence.cached_len = 0
        if sequence.seat != NO_SEAT:
            self._seats.append(sequence.seat)
            sequence.seat = NO_SEAT

    def _grow(self, sequence: Sequence) -> bool:
        """Give a sequence pages for its new indices; return False if there are not enough."""
        new = self._pages_for(sequence.length) - len(sequence.pages)
        if new > self.pool.free + self.pool.idle:
            return False
        sequence.pages.extend(self._allocate(new))
        return True

    def _allocate(self, count: int) -> list[int]:
        if self._cache and self.pool.free < count:
            self._cache.make_room(count)
        return self.pool.allocate(count)

    def _pages_for(self, length: int) -> int:
        return -(-length // self._config.page_size)


def _rank(sequence: Sequence) -> int:
    return sequence.arrival + _OVERTAKEN * sequence.request.priority
