"""The thread around the engine; tests wait on its deliveries."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from threading import Condition, Event, Semaphore, Thread, get_ident
from traceback import format_exception

import pytest

from stoop_worker.engine.engine import Engine
from stoop_worker.engine.grammars.grammars import COMPILERS
from stoop_worker.engine.request import (
    Aborted,
    Caption,
    Chat,
    Detect,
    EnginePort,
    Finished,
    Message,
    Output,
    Query,
    Refused,
    Request,
    Sampling,
)
from stoop_worker.engine.sequence import Sequence as Sequenced
from stoop_worker.engine.stats import Stats
from stoop_worker.engine.thread import EngineThread
from stoop_worker.errors import EngineFault
from stoop_worker.models.moondream.family import MoondreamFamily
from tests.engine.micro import MICRO, crops_of, micro_moondream, small_engine

SECONDS = 20.0  # how long a test waits before it fails
ENDLESS = Sampling(temperature=0.0, max_tokens=60, seed=0)


class Inbox:
    """Keeps the delivered outputs, and lets a test wait for them."""

    def __init__(self) -> None:
        self.outputs: list[Output] = []
        self.threads: set[int] = set()
        self.changed = Condition()

    def deliver(self, outputs: Sequence[Output]) -> None:
        with self.changed:
            assert outputs
            self.outputs += outputs
            self.threads.add(get_ident())
            self.changed.notify_all()

    def wait_for(self, enough: Callable[[], bool]) -> None:
        with self.changed:
            assert self.changed.wait_for(enough, SECONDS)

    @property
    def ends(self) -> list[Output]:
        return [output for output in self.outputs if isinstance(output, Finished | Refused | Aborted)]


@contextmanager
def running(inbox: Inbox) -> Iterator[EngineThread]:
    thread = EngineThread(small_engine(), inbox.deliver)
    thread.start()
    try:
        yield thread
    finally:
        thread.stop()


def test_requests_from_outside_are_answered_in_the_engines_thread() -> None:
    inbox = Inbox()
    with running(inbox) as thread:
        port: EnginePort = thread
        for index in range(5):
            port.submit(Request(str(index), Detect("a dog"), (crops_of(index % 2),), Sampling(max_objects=1)))
        port.submit(Request("bad", Caption("short")))
        inbox.wait_for(lambda: len(inbox.ends) == 6)
        assert port.alive and thread.fault is None
    assert {end.id for end in inbox.ends} == {"0", "1", "2", "3", "4", "bad"}
    assert get_ident() not in inbox.threads and len(inbox.threads) == 1
    assert thread.stats.totals.finished == 5 and thread.stats.totals.refused == 1


class Watched(Engine):
    """Lets a test wait for rounds of the loop: each asks for the stats once."""

    def __init__(self) -> None:
        self.rounds = 0
        self.checks = 0
        self.changed = Condition()
        super().__init__(MoondreamFamily(micro_moondream()))

    @property
    def stats(self) -> Stats:
        with self.changed:
            self.rounds += 1
            self.changed.notify_all()
        return super().stats

    def check(self) -> None:
        self.checks += 1
        super().check()


def test_steps_grow_while_idle_and_pages_are_counted_once() -> None:
    engine = Watched()
    thread = EngineThread(engine, Inbox().deliver)
    thread.start()
    with engine.changed:
        assert engine.changed.wait_for(lambda: engine.rounds >= 5, SECONDS)
    assert thread.progress >= 3
    thread.stop()
    assert engine.checks == 1


class Progress(Engine):
    """Records how far `steps` of its thread grows inside each step."""

    def __init__(self) -> None:
        self.grown: list[int] = []
        self.thread: EngineThread | None = None
        super().__init__(MoondreamFamily(micro_moondream()))

    def step(self) -> list[Output]:
        assert self.thread is not None
        before = self.thread.progress
        outputs = super().step()
        self.grown.append(self.thread.progress - before)
        return outputs


def test_steps_grow_inside_a_step_with_every_layer() -> None:
    engine, inbox = Progress(), Inbox()
    engine.thread = EngineThread(engine, inbox.deliver)
    engine.thread.submit(Request("a", Caption("short"), (crops_of(0),), Sampling(temperature=0, max_tokens=3)))
    engine.thread.start()
    inbox.wait_for(lambda: len(inbox.ends) == 1)
    engine.thread.stop()
    first, *later = engine.grown
    assert first > MICRO.vision.enc_n_layers + MICRO.text.n_layers
    assert all(grown > MICRO.text.n_layers for grown in later)


def test_an_abort_ends_a_request_and_frees_its_id() -> None:
    inbox = Inbox()
    with running(inbox) as thread:
        thread.submit(Request("a", Query("what?"), (crops_of(0),), ENDLESS))
        thread.abort("a")
        inbox.wait_for(lambda: len(inbox.ends) == 1)
        thread.abort("a")
        thread.abort("never seen")
        thread.submit(Request("a", Caption("short"), (crops_of(0),), Sampling(max_tokens=1)))
        inbox.wait_for(lambda: len(inbox.ends) == 2)
    assert inbox.ends[0] == Aborted("a")
    assert isinstance(inbox.ends[1], Finished)


def test_an_id_in_flight_is_the_callers_mistake() -> None:
    thread = EngineThread(small_engine(), Inbox().deliver)
    thread.submit(Request("a", Query("what?")))
    with pytest.raises(ValueError, match="in flight"):
        thread.submit(Request("a", Query("what?")))
    thread.stop()


def test_after_a_stop_nothing_is_taken() -> None:
    with running(Inbox()) as thread:
        pass
    assert not thread.alive and thread.fault is None
    with pytest.raises(EngineFault, match="start another"):
        thread.submit(Request("a", Query("what?")))
    thread.stop()


def fail(outputs: Sequence[Output]) -> None:
    raise RuntimeError("the device is gone")


def test_a_fault_ends_the_loop_and_is_kept_with_its_traceback() -> None:
    thread = EngineThread(small_engine(), fail)
    thread.submit(Request("a", Caption("short")))
    thread.start()
    thread._thread.join(SECONDS)
    assert not thread.alive
    assert str(thread.fault) == "the device is gone"
    assert "in fail" in "".join(format_exception(thread.fault))
    with pytest.raises(EngineFault):
        thread.submit(Request("b", Query("what?")))
    thread.stop()


def test_a_fault_notifies_the_owner_at_once_in_the_engines_thread() -> None:
    received: list[tuple[int, bool, str]] = []
    ended = Event()

    def on_end() -> None:
        received.append((get_ident(), thread.alive, str(thread.fault)))
        ended.set()

    thread = EngineThread(small_engine(), fail, on_end)
    thread.submit(Request("a", Caption("short")))
    thread.start()
    assert ended.wait(SECONDS)
    thread.stop()
    assert received == [(thread._thread.ident, False, "the device is gone")]


def test_a_stop_does_not_notify_the_owner() -> None:
    received: list[None] = []
    thread = EngineThread(small_engine(), Inbox().deliver, lambda: received.append(None))
    thread.start()
    thread.stop()
    assert not received and not thread.alive


class Preparing(Engine):
    """Records which thread prepares, and lets a test block it."""

    def __init__(self) -> None:
        self.threads: list[int] = []
        self.entered, self.go_on = Event(), Event()
        self.new_grammars = Semaphore(0)
        super().__init__(MoondreamFamily(micro_moondream()))

    def compiles(self, request: Request) -> bool:
        return request.id.startswith("new")

    def prepare(self, request: Request, submitted: float | None = None) -> Sequenced | Refused:
        self.threads.append(get_ident())
        if request.id == "broken":
            raise RuntimeError("a defect in the tokenizer")
        if request.id == "slow":
            self.entered.set()
            assert self.go_on.wait(SECONDS)
        if request.id.startswith("new"):
            self.new_grammars.release()
            assert self.go_on.wait(SECONDS)
        return super().prepare(request, submitted)


LONG = Query("what? " * 50)
CHAT = Chat((Message("user", ("what?",)),))


def test_only_short_prompts_without_an_adapter_are_prepared_in_the_engines_thread() -> None:
    engine, inbox = Preparing(), Inbox()
    thread = EngineThread(engine, inbox.deliver)
    thread.start()
    thread.submit(Request("long", LONG, (), Sampling(max_tokens=1)))
    thread.submit(Request("chat", CHAT, (), Sampling(max_tokens=1)))
    thread.submit(Request("adapted", Query("what?"), (), Sampling(max_tokens=1), adapter="a"))
    thread.submit(Request("short", Query("what?"), (), Sampling(max_tokens=1)))
    thread.submit(Request("bad", Caption("short")))
    inbox.wait_for(lambda: len(inbox.ends) == 5)
    thread.stop()
    assert engine.threads == [get_ident()] * 3 + [thread._thread.ident] * 2
    assert {type(end) for end in inbox.ends if end.id == "bad"} == {Refused}


def test_the_time_to_the_first_token_counts_from_the_submission() -> None:
    now = 0.0
    engine = Engine(MoondreamFamily(micro_moondream()), clock=lambda: now)
    inbox = Inbox()
    thread = EngineThread(engine, inbox.deliver)
    thread.submit(Request("short", Query("what?"), (), Sampling(max_tokens=1)))
    now = 3.0
    thread.start()
    inbox.wait_for(lambda: len(inbox.ends) == 1)
    thread.stop()
    finished = inbox.ends[0]
    assert isinstance(finished, Finished) and finished.usage.ttft_ms == 3000


def test_a_request_in_preparation_delays_no_other_and_can_be_aborted() -> None:
    engine, inbox = Preparing(), Inbox()
    thread = EngineThread(engine, inbox.deliver)
    thread.start()
    slow = Thread(target=thread.submit, args=(Request("slow", CHAT, (), ENDLESS),))
    slow.start()
    assert engine.entered.wait(SECONDS)
    thread.submit(Request("quick", Query("what?"), (), Sampling(max_tokens=1)))
    inbox.wait_for(lambda: len(inbox.ends) == 1)
    thread.abort("slow")
    engine.go_on.set()
    inbox.wait_for(lambda: len(inbox.ends) == 2)
    slow.join(SECONDS)
    thread.stop()
    assert inbox.ends[1] == Aborted("slow")


def test_requests_with_compiling_grammars_delay_no_other_and_can_be_aborted() -> None:
    engine, inbox = Preparing(), Inbox()
    thread = EngineThread(engine, inbox.deliver)
    thread.start()
    for number in range(COMPILERS + 2):
        thread.submit(Request(f"new {number}", Query("what?"), (), Sampling(max_tokens=1)))
    for _ in range(COMPILERS):
        assert engine.new_grammars.acquire(timeout=SECONDS)
    thread.submit(Request("quick", Query("what?"), (), Sampling(max_tokens=1)))
    inbox.wait_for(lambda: len(inbox.ends) == 1)
    assert isinstance(inbox.ends[0], Finished) and inbox.ends[0].id == "quick"
    thread.abort(f"new {COMPILERS}")  # waits for a thread: ends at once
    inbox.wait_for(lambda: len(inbox.ends) == 2)
    assert inbox.ends[1] == Aborted(f"new {COMPILERS}")
    thread.abort("new 0")  # compiles: ends after that
    engine.go_on.set()
    inbox.wait_for(lambda: len(inbox.ends) == COMPILERS + 3)
    thread.stop()
    assert Aborted("new 0") in inbox.ends
    assert thread.stats.totals.aborted == 2 and thread.stats.totals.finished == COMPILERS + 1


def test_a_stop_does_not_wait_for_grammars() -> None:
    engine, inbox = Preparing(), Inbox()
    thread = EngineThread(engine, inbox.deliver)
    thread.start()
    for number in range(COMPILERS + 1):
        thread.submit(Request(f"new {number}", Query("what?")))
    for _ in range(COMPILERS):
        assert engine.new_grammars.acquire(timeout=SECONDS)
    thread.stop()
    engine.go_on.set()
    with pytest.raises(EngineFault, match="start another"):
        thread.submit(Request("new again", Query("what?")))
    assert not inbox.ends


def test_a_defect_while_preparing_ends_the_engine_and_not_the_caller() -> None:
    thread = EngineThread(Preparing(), Inbox().deliver)
    thread.submit(Request("broken", Query("what?")))
    thread.start()
    thread._thread.join(SECONDS)
    assert not thread.alive and str(thread.fault) == "a defect in the tokenizer"


@pytest.mark.parametrize("name", ["broken panic", "new panic"])
def test_a_panic_of_a_library_while_preparing_ends_the_engine_so_that_nothing_waits(name: str) -> None:
    class Panic(BaseException):
        pass

    class Panicking(Preparing):
        def prepare(self, request: Request, submitted: float | None = None) -> Sequenced | Refused:
            raise Panic("in native code")

    ended = Event()
    thread = EngineThread(Panicking(), Inbox().deliver, ended.set)
    thread.start()
    thread.submit(Request(name, CHAT))
    assert ended.wait(SECONDS)
    assert not thread.alive and str(thread.fault) == "in native code"
