"""Plans, step by step, with sequences that need no model."""

from tests.engine import micro
from tests.engine.audit import audit
from worker.engine.config import EngineConfig
from worker.engine.inputs import TokenInput
from worker.engine.pages import PagePool
from worker.engine.request import Caption, Detect, Query, Request
from worker.engine.scheduler import Chunk, Plan, Scheduler
from worker.engine.sequence import Sequence
from worker.engine.skills import SpatialSkill
from worker.model import vision

PREFIX = 26


def sequence(arrival: int, length: int, image: int | None = None, *, size: int = 8) -> Sequence:
    """Return one with `length` inputs of its own after the prefix."""
    crops = None if image is None else micro.crops_of(image, size, size)
    request = Request(str(arrival), Caption() if crops else Query("?"), crops)
    return Sequence(
        request=request,
        skill=SpatialSkill(Request(str(arrival), Detect("?")), eos_id=0),
        arrival=arrival,
        prefix_len=PREFIX if crops else 0,
        inputs=[TokenInput(1000 * arrival + index) for index in range(length)],
        seed=0,
        crops=vision.crops_to_encode(crops, micro.MICRO.vision) if crops else 0,
    )


def scheduler(pages: int = 100, **changes: int | bool) -> Scheduler:
    defaults: dict[str, int | bool] = {"page_size": 4, "max_batch": 4, "token_budget": 64, "crop_budget": 8}
    return Scheduler(EngineConfig(**(defaults | changes)), PagePool(pages))  # type: ignore[arg-type]


def turn(scheduler: Scheduler) -> Plan:
    """Plan a step, take it as done, and let every sequence that read a token have one more input."""
    plan = scheduler.schedule()
    scheduler.commit(plan)
    for chunk in plan.chunks:
        if chunk.end == chunk.sequence.length:
            chunk.sequence.inputs.append(TokenInput(7))
    audit(scheduler.pool)
    return plan


def spans(chunks: tuple[Chunk, ...]) -> list[tuple[int, int, int]]:
    return [(chunk.sequence.arrival, chunk.start, chunk.end) for chunk in chunks]


def test_a_prompt_is_prefilled_and_then_decodes() -> None:
    work = scheduler()
    work.add(sequence(0, 5))
    assert spans(turn(work).prefills) == [(0, 0, 5)]
    assert spans(turn(work).decodes) == [(0, 5, 6)]
    assert turn(work).prefills == ()


def test_a_long_prompt_is_cut_by_the_token_budget_while_others_decode() -> None:
    work = scheduler(token_budget=8)
    work.add(sequence(0, 3))
    turn(work)
    work.add(sequence(1, 20))
    plan = turn(work)
    assert (spans(plan.prefills), spans(plan.decodes)) == ([(1, 0, 7)], [(0, 3, 4)])
    assert not plan.prefills[0].reads
    assert spans(turn(work).prefills) == [(1, 7, 14)]
    last = work.schedule()
    assert spans(last.prefills) == [(1, 14, 20)] and last.prefills[0].reads


def test_an_image_prefix_is_never_cut() -> None:
    work = scheduler(token_budget=8)
    work.add(sequence(0, 5, image=0))
    plan = turn(work)
    assert spans(plan.prefills) == [(0, 0, PREFIX)]
    assert plan.prefills[0].has_image
    assert spans(turn(work).prefills) == [(0, PREFIX, PREFIX + 5)]


def test_an_image_over_what_is_left_of_the_token_budget_waits() -> None:
    work = scheduler(token_budget=40)
    work.add(sequence(0, 5, image=0))
    work.add(sequence(1, 5, image=1))
    assert spans(turn(work).prefills) == [(0, 0, 31)]
    assert spans(turn(work).prefills) == [(1, 0, 31)]


def test_the_crop_budget_bounds_what_is_encoded_but_one_image_always_is() -> None:
    work = scheduler(token_budget=400, crop_budget=2)
    large = [sequence(arrival, 2, image=arrival, size=20) for arrival in (0, 1)]
    small = [sequence(arrival, 2, image=arrival) for arrival in (2, 3)]
    assert [one.crops for one in (large[0], small[0])] == [5, 1]
    for one in large + small:
        work.add(one)
    encoded = [[chunk.sequence.arrival for chunk in turn(work).prefills] for _ in range(3)]
    assert encoded == [[0], [1], [2, 3]]


def test_an_image_that_is_being_encoded_is_waited_for_and_then_hit() -> None:
    work = scheduler(token_budget=200)
    for arrival in range(3):
        work.add(sequence(arrival, 4, image=0 if arrival < 2 else 1))
    assert spans(turn(work).prefills) == [(0, 0, 30), (2, 0, 30)]
    plan = turn(work)
    assert spans(plan.prefills) == [(1, PREFIX, 30)]
    assert len(plan.copies) == 1  # the prefix ends inside a page
    assert [one.arrival for one in work.running] == [0, 1, 2]


def test_without_the_cache_nobody_waits_for_an_image() -> None:
    work = scheduler(token_budget=200, prefix_cache=False)
    work.add(sequence(0, 4, image=0))
    work.add(sequence(1, 4, image=0))
    assert spans(turn(work).prefills) == [(0, 0, 30), (1, 0, 30)]


def test_no_more_run_than_the_batch_holds_and_the_first_come_first() -> None:
    work = scheduler(max_batch=2)
    for arrival in (1, 0, 2):
        work.add(sequence(arrival, 3))
    turn(work)
    assert [one.arrival for one in work.running] == [0, 1]
    work.remove(work.running[0])
    turn(work)
    assert [one.arrival for one in work.running] == [1, 2]


def test_admission_leaves_each_running_sequence_a_page_to_grow() -> None:
    work = scheduler(pages=6, prefix_cache=False)
    work.add(sequence(0, 12))
    work.add(sequence(1, 12))
    assert spans(turn(work).prefills) == [(0, 0, 12)]
    work.remove(work.running[0])
    assert spans(turn(work).prefills) == [(1, 0, 12)]


def test_a_younger_request_does_not_overtake_one_that_waits_for_pages() -> None:
    work = scheduler(pages=6, prefix_cache=False)
    for arrival, length in ((0, 12), (1, 16), (2, 2)):
        work.add(sequence(arrival, length))
    assert spans(turn(work).prefills) == [(0, 0, 12)]
    assert turn(work).prefills == ()


def test_the_youngest_is_preempted_when_the_oldest_needs_a_page() -> None:
    work = scheduler(pages=4, prefix_cache=False)
    work.add(sequence(0, 4))
    work.add(sequence(1, 4))
    assert len(turn(work).prefills) == 2
    turn(work)  # both grow: no page is left
    for _ in range(3):
        turn(work)
    plan = turn(work)
    assert plan.preempted == 1
    # the pages it gave back are not enough to start it again at once
    assert (spans(plan.decodes), spans(plan.prefills)) == ([(0, 8, 9)], [])
    assert [one.arrival for one in work.waiting] == [1]
    assert (work.waiting[0].cached_len, work.waiting[0].pages) == (0, [])
    work.remove(work.running[0])
    # all it had said is computed again, in one prefill
    assert spans(turn(work).prefills) == [(1, 0, 9)]


def test_the_youngest_may_have_to_preempt_itself() -> None:
    work = scheduler(pages=5, prefix_cache=False)
    work.add(sequence(0, 8))
    work.add(sequence(1, 4))
    turn(work)
    older, younger = work.running
    older.inputs += [TokenInput(7)] * 4  # needs two more pages, as many as are left
    plan = turn(work)
    assert plan.preempted == 1 and work.running == [older]
    assert younger in work.waiting


def test_cached_prefixes_give_way_to_running_sequences() -> None:
    work = scheduler(pages=8)
    work.add(sequence(0, 16))
    turn(work)
    work.remove(work.running[0])
    assert work.pool.idle == 4
    work.add(sequence(1, 30))
    assert spans(turn(work).prefills) == [(1, 0, 30)]
    assert work.pool.idle == 0


def test_removing_who_waits_or_runs_gives_all_pages_back() -> None:
    work = scheduler(prefix_cache=False)
    running, waiting = sequence(0, 4), sequence(1, 4)
    work.add(running)
    turn(work)
    work.add(waiting)
    work.remove(waiting)
    work.remove(running)
    assert (work.waiting, work.running, work.pool.free) == ([], [], 100)


def test_nothing_to_do_is_an_empty_plan() -> None:
    assert scheduler().schedule() == Plan((), (), (), 0)
