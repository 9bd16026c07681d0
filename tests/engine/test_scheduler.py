"""Plans, step by step, with sequences that need no model."""

from stoop_worker.engine.config import EngineConfig
from stoop_worker.engine.inputs import Input, MediaInput, TokenInput, width_of
from stoop_worker.engine.pages import PagePool
from stoop_worker.engine.request import Detect, Request
from stoop_worker.engine.scheduler import Chunk, Plan, Scheduler
from stoop_worker.engine.sequence import Sequence
from stoop_worker.models.moondream.config_parts import TokenizerConfig
from stoop_worker.models.moondream.skills import SpatialSkill
from tests.engine import micro
from tests.engine.audit import audit

PREFIX = 26


def sequence(arrival: int, length: int, image: int | None = None, *, cost: int = 1, priority: int = 0) -> Sequence:
    """Return one with `length` tokens of its own, after an image if it has one."""
    own = [TokenInput(1000 * arrival + index) for index in range(length)]
    return (
        made(arrival, *own, priority=priority)
        if image is None
        else made(arrival, medium(image, cost=cost), *own, priority=priority)
    )


def made(arrival: int, *inputs: Input, priority: int = 0) -> Sequence:
    """Return a sequence of these inputs."""
    request = Request(str(arrival), Detect("?"), priority=priority)
    one = Sequence(
        request=request,
        skill=SpatialSkill(request, ids=TokenizerConfig()),
        inputs=list(inputs),
        seed=0,
        media=[micro.crops_of(0) for fed in inputs if isinstance(fed, MediaInput)],
        arrival=arrival,
    )
    assert one.length == width_of(inputs)
    return one


def medium(number: int, width: int = PREFIX, cost: int = 1) -> MediaInput:
    return MediaInput(bytes([number]), width, cost)


def tokens(first: int, count: int) -> list[Input]:
    return [TokenInput(first + index) for index in range(count)]


def scheduler(pages: int = 100, **changes: int | bool) -> Scheduler:
    defaults: dict[str, int | bool] = {"page_size": 4, "max_batch": 4, "token_budget": 64, "encode_budget": 8}
    return Scheduler(EngineConfig(**(defaults | changes)), PagePool(pages))  # type: ignore[arg-type]


def run_step(scheduler: Scheduler) -> Plan:
    """Plan a step, take it as done, and let every sequence that read a token have one more input."""
    plan = scheduler.schedule()
    scheduler.commit(plan)
    for chunk in plan.chunks:
        if chunk.end == chunk.sequence.length:
            chunk.sequence.add([TokenInput(7)])
    audit(scheduler.pool)
    return plan


def spans(chunks: tuple[Chunk, ...]) -> list[tuple[int, int, int]]:
    return [(chunk.sequence.arrival, chunk.start, chunk.end) for chunk in chunks]


def test_a_prompt_is_prefilled_and_then_decodes() -> None:
    work = scheduler()
    work.add(sequence(0, 5))
    assert spans(run_step(work).prefills) == [(0, 0, 5)]
    assert spans(run_step(work).decodes) == [(0, 5, 6)]
    assert run_step(work).prefills == ()


def test_a_long_prompt_is_cut_by_the_token_budget_while_others_decode() -> None:
    work = scheduler(token_budget=8)
    work.add(sequence(0, 3))
    run_step(work)
    work.add(sequence(1, 20))
    plan = run_step(work)
    assert (spans(plan.prefills), spans(plan.decodes)) == ([(1, 0, 7)], [(0, 3, 4)])
    assert not plan.prefills[0].is_last
    assert spans(run_step(work).prefills) == [(1, 7, 14)]
    last = work.schedule()
    assert spans(last.prefills) == [(1, 14, 20)] and last.prefills[0].is_last


def test_an_image_prefix_is_never_cut() -> None:
    work = scheduler(token_budget=8)
    work.add(sequence(0, 5, image=0))
    plan = run_step(work)
    assert spans(plan.prefills) == [(0, 0, PREFIX)]
    assert [span.start for span in plan.prefills[0].media] == [0]
    assert spans(run_step(work).prefills) == [(0, PREFIX, PREFIX + 5)]


def test_an_image_over_the_rest_of_the_token_budget_waits() -> None:
    work = scheduler(token_budget=40)
    work.add(sequence(0, 5, image=0))
    work.add(sequence(1, 5, image=1))
    assert spans(run_step(work).prefills) == [(0, 0, 31)]
    assert spans(run_step(work).prefills) == [(1, 0, 31)]


def test_the_encode_budget_bounds_a_step_but_always_allows_one_image() -> None:
    work = scheduler(token_budget=400, encode_budget=2)
    large = [sequence(arrival, 2, image=arrival, cost=5) for arrival in (0, 1)]
    small = [sequence(arrival, 2, image=arrival) for arrival in (2, 3)]
    for one in large + small:
        work.add(one)
    encoded = [[chunk.sequence.arrival for chunk in run_step(work).prefills] for _ in range(3)]
    assert encoded == [[0], [1], [2, 3]]


def test_an_image_that_is_being_encoded_is_waited_for_and_then_hit() -> None:
    work = scheduler(token_budget=200)
    for arrival in range(3):
        work.add(sequence(arrival, 4, image=0 if arrival < 2 else 1))
    assert spans(run_step(work).prefills) == [(0, 0, 30), (2, 0, 30)]
    plan = run_step(work)
    assert spans(plan.prefills) == [(1, PREFIX, 30)]
    assert len(plan.copies) == 1  # the prefix ends inside a page
    assert [one.arrival for one in work.running] == [0, 1, 2]


def test_without_the_cache_equal_images_do_not_wait_for_each_other() -> None:
    work = scheduler(token_budget=200, prefix_cache=False)
    work.add(sequence(0, 4, image=0))
    work.add(sequence(1, 4, image=0))
    assert spans(run_step(work).prefills) == [(0, 0, 30), (1, 0, 30)]


def test_no_more_run_than_the_batch_holds_and_the_first_come_first() -> None:
    work = scheduler(max_batch=2)
    for arrival in (1, 0, 2):
        work.add(sequence(arrival, 3))
    run_step(work)
    assert [one.arrival for one in work.running] == [0, 1]
    work.remove(work.running[0])
    run_step(work)
    assert [one.arrival for one in work.running] == [1, 2]


def test_a_request_of_an_earlier_priority_goes_before_all_that_wait() -> None:
    work = scheduler(max_batch=1)
    for arrival, priority in ((0, 1), (1, 1), (2, 0), (3, 0)):
        work.add(sequence(arrival, 3, priority=priority))
    assert [one.arrival for one in work.waiting] == [2, 3, 0, 1]


def test_overtaking_is_bounded() -> None:
    work = scheduler(max_batch=1)
    work.add(sequence(0, 3, priority=1))
    for arrival in range(1, 400):
        work.add(sequence(arrival, 3))
    place = next(place for place, one in enumerate(work.waiting) if one.arrival == 0)
    assert 200 < place < 300


def test_later_priorities_prefill_now_and_then_while_an_earlier_one_runs() -> None:
    work = scheduler(token_budget=400, yield_steps=3)
    work.add(sequence(0, 3))
    run_step(work)
    for arrival in (1, 2):
        work.add(sequence(arrival, 4, image=arrival, priority=1))
    plans = [run_step(work) for _ in range(8)]
    assert [[chunk.sequence.arrival for chunk in plan.prefills] for plan in plans] == [
        *([], [], [], [1]),  # one image, though the budgets have room for both
        *([], [], [], [2]),
    ]
    assert all(0 in [chunk.sequence.arrival for chunk in plan.decodes] for plan in plans)
    assert 1 in [chunk.sequence.arrival for chunk in plans[-1].decodes], "what was begun goes on"


def test_an_image_of_an_earlier_priority_has_its_step_to_itself() -> None:
    work = scheduler(token_budget=400)
    work.add(sequence(0, 4, image=0, priority=1))
    work.add(sequence(1, 4, image=1))
    assert spans(run_step(work).prefills) == [(1, 0, 30)]


def test_a_step_without_the_first_priority_is_short() -> None:
    for priority, together in ((1, 2), (0, 4)):
        work = scheduler(token_budget=400, stall_budget=4)
        for arrival in range(4):
            work.add(sequence(arrival, 4, image=arrival, priority=priority))
        assert len(run_step(work).prefills) == together, "a request of the first priority may come at any time"


def test_equal_priorities_do_not_yield_to_each_other() -> None:
    work = scheduler(token_budget=400)
    for arrival in range(3):
        work.add(sequence(arrival, 4, image=arrival, priority=1))
    assert len(run_step(work).prefills) == 3


def test_later_priorities_leave_seats_for_the_first() -> None:
    work = scheduler(pages=400, max_batch=32, token_budget=400)
    for arrival in range(40):
        work.add(sequence(arrival, 2, priority=1))
    assert len(run_step(work).prefills) == 30
    for arrival in range(40, 43):
        work.add(sequence(arrival, 2))
    run_step(work)
    assert sum(one.request.priority == 0 for one in work.running) == 2


def test_a_later_priority_is_preempted_before_a_younger_request_of_the_first() -> None:
    work = scheduler(pages=4, prefix_cache=False)
    work.add(sequence(0, 4, priority=1))
    run_step(work)
    work.add(sequence(1, 4))
    while not (plan := run_step(work)).preempted:
        pass
    assert [one.arrival for one in work.waiting] == [0]
    assert [chunk.sequence.arrival for chunk in plan.decodes] == [1]


def test_admission_leaves_each_running_sequence_a_page_to_grow() -> None:
    work = scheduler(pages=6, prefix_cache=False)
    work.add(sequence(0, 12))
    work.add(sequence(1, 12))
    assert spans(run_step(work).prefills) == [(0, 0, 12)]
    work.remove(work.running[0])
    assert spans(run_step(work).prefills) == [(1, 0, 12)]


def test_a_younger_request_does_not_overtake_one_that_waits_for_pages() -> None:
    work = scheduler(pages=6, prefix_cache=False)
    for arrival, length in ((0, 12), (1, 16), (2, 2)):
        work.add(sequence(arrival, length))
    assert spans(run_step(work).prefills) == [(0, 0, 12)]
    assert run_step(work).prefills == ()


def test_the_youngest_is_preempted_when_the_oldest_needs_a_page() -> None:
    work = scheduler(pages=4, prefix_cache=False)
    work.add(sequence(0, 4))
    work.add(sequence(1, 4))
    assert len(run_step(work).prefills) == 2
    run_step(work)  # both grow: no page is left
    for _ in range(3):
        run_step(work)
    plan = run_step(work)
    assert plan.preempted == 1
    # the pages it gave back are not enough to start it again at once
    assert (spans(plan.decodes), spans(plan.prefills)) == ([(0, 8, 9)], [])
    assert [one.arrival for one in work.waiting] == [1]
    assert (work.waiting[0].cached_len, list(work.waiting[0].pages)) == (0, [])
    work.remove(work.running[0])
    # all tokens it had sampled are computed again, in one prefill
    assert spans(run_step(work).prefills) == [(1, 0, 9)]


def test_the_youngest_may_have_to_preempt_itself() -> None:
    work = scheduler(pages=5, prefix_cache=False)
    work.add(sequence(0, 8))
    work.add(sequence(1, 4))
    run_step(work)
    older, younger = work.running
    older.add([TokenInput(7)] * 4)  # needs two more pages, as many as are left
    plan = run_step(work)
    assert plan.preempted == 1 and work.running == [older]
    assert younger in work.waiting


def test_cached_prefixes_give_way_to_running_sequences() -> None:
    work = scheduler(pages=8)
    work.add(sequence(0, 16))
    run_step(work)
    work.remove(work.running[0])
    assert work.pool.idle == 4
    work.add(sequence(1, 30))
    assert spans(run_step(work).prefills) == [(1, 0, 30)]
    assert work.pool.idle == 0


def test_removing_a_waiting_or_running_sequence_frees_its_pages() -> None:
    work = scheduler(prefix_cache=False)
    running, waiting = sequence(0, 4), sequence(1, 4)
    work.add(running)
    run_step(work)
    work.add(waiting)
    work.remove(waiting)
    work.remove(running)
    assert (work.waiting, work.running, work.pool.free) == ([], [], 100)


def test_nothing_to_do_is_an_empty_plan() -> None:
    assert scheduler().schedule() == Plan((), (), (), 0)


def test_media_anywhere_in_a_prompt_are_never_cut() -> None:
    work = scheduler(token_budget=20)
    work.add(made(0, *tokens(0, 5), medium(1, 10), *tokens(50, 3), medium(2, 12), *tokens(60, 4)))
    done = [spans(run_step(work).prefills) for _ in range(3)]
    # the second would end at 30, over the budget of the first step
    assert done == [[(0, 0, 18)], [(0, 18, 34)], []]


def test_a_medium_over_every_budget_runs_as_the_first_of_a_step() -> None:
    work = scheduler(token_budget=8, encode_budget=2)
    work.add(made(0, *tokens(0, 3), medium(1, 30, cost=9), *tokens(50, 2)))
    assert [spans(run_step(work).prefills) for _ in range(3)] == [[(0, 0, 3)], [(0, 3, 33)], [(0, 33, 35)]]


def test_a_running_prompt_waits_before_a_medium_while_others_decode() -> None:
    work = scheduler(token_budget=64, encode_budget=8, stall_budget=2)
    work.add(sequence(0, 2))
    run_step(work)
    work.add(made(1, *tokens(10, 4), medium(1, 6, cost=2), *tokens(20, 2), medium(2, 6, cost=2), *tokens(30, 2)))
    assert [spans(run_step(work).prefills) for _ in range(2)] == [[(1, 0, 12)], [(1, 12, 20)]]


def test_a_medium_behind_the_same_words_is_encoded_once() -> None:
    work = scheduler(token_budget=200)
    for arrival in range(2):
        work.add(made(arrival, *tokens(0, 5), medium(1, 10), *tokens(100 * arrival, 4)))
    assert spans(run_step(work).prefills) == [(0, 0, 19)]
    assert spans(run_step(work).prefills) == [(1, 15, 19)]


def test_a_medium_used_twice_in_a_prompt_does_not_wait_for_itself() -> None:
    work = scheduler(token_budget=200)
    work.add(made(0, medium(1, 10), *tokens(0, 2), medium(1, 10), *tokens(5, 2)))
    assert spans(run_step(work).prefills) == [(0, 0, 24)]
