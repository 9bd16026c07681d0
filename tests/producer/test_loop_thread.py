"""The blocking client where its loop's thread, a finaliser, a signal or a forked child comes in between."""

import asyncio
import contextlib
import gc
import multiprocessing
import signal
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future
from typing import Any

import pytest

from stoop import AsyncClient, Client, ClientUnusable
from stoop.config import ProducerConfig
from stoop_schemas.event import QueuedEvent, StartedEvent
from stoop_schemas.job import Job
from tests.producer.scripted import ScriptedTransport, answer

IMAGE = "s3://photos/cat.jpg"
SOON = 10.0


class Interrupting(ScriptedTransport):
    """Runs a test's code on the loop's thread when a state or a log is read; `left` is set when a reader leaves."""

    def __init__(self, script: Any = answer) -> None:
        super().__init__(script)
        self.interrupt: Callable[[], Any] = lambda: None
        self.interrupt_reading: Callable[[], Any] = lambda: None
        self.left = threading.Event()

    async def log(self, job_id: str, after: int = -1) -> list[bytes]:
        self.interrupt_reading()
        return await super().log(job_id, after)

    async def state(self, job_id: str) -> str | None:
        self.interrupt()
        return None

    @contextlib.asynccontextmanager
    async def subscribe(self, job_id: str) -> AsyncIterator[AsyncIterator[bytes | None]]:
        try:
            async with super().subscribe(job_id) as published:
                yield published
        finally:
            self.left.set()


@pytest.fixture
def transport() -> Interrupting:
    return Interrupting()


@pytest.fixture
def client(transport: Interrupting) -> Iterator[Client]:
    client = Client(ProducerConfig(), transport=transport)
    yield client
    within(client.close)


def within(call: Callable[[], Any]) -> Any:
    """Call in another thread; a call that never returns is a failure, and blocks nothing."""
    outcome: Future[Any] = Future()

    def run() -> None:
        try:
            outcome.set_result(call())
        except BaseException as error:
            outcome.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return outcome.result(SOON)


@contextlib.contextmanager
def no_collection() -> Iterator[None]:
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def abandon_in_a_circle(client: Client) -> None:
    pieces = client.caption(IMAGE, stream=True)["caption"]
    next(pieces)
    try:
        raise ValueError
    except ValueError as error:
        kept = error  # its traceback holds this frame, and the frame holds it
    assert kept


def test_a_stream_that_is_collected_on_the_loops_thread_stops_nothing(client: Client, transport: Interrupting) -> None:
    with no_collection():
        within(lambda: abandon_in_a_circle(client))
        transport.interrupt = gc.collect
        within(lambda: client.state("any"))
    assert transport.left.wait(SOON), "what was left is unsubscribed"
    assert within(lambda: client.caption(IMAGE)) == {"caption": "shapes on paper"}


def test_a_call_on_the_loops_thread_is_refused(client: Client, transport: Interrupting) -> None:
    transport.interrupt = lambda: client.state("other")
    with pytest.raises(ClientUnusable, match="own thread"):
        within(lambda: client.state("any"))
    transport.interrupt = lambda: None
    assert within(lambda: client.state("any")) is None


def test_a_client_may_be_closed_on_its_own_thread(transport: Interrupting) -> None:
    client = Client(ProducerConfig(), transport=transport)
    transport.interrupt = client.close
    with contextlib.suppress(ClientUnusable):  # the call may have had its answer before the end
        within(lambda: client.state("any"))
    with pytest.raises(ClientUnusable, match="closed"):
        within(lambda: client.state("any"))


def test_ctrl_c_in_a_stream_unsubscribes_and_is_raised_as_it_is(client: Client, transport: Interrupting) -> None:
    transport.script = None
    main = threading.main_thread().ident
    assert main is not None
    transport.interrupt_reading = lambda: signal.pthread_kill(main, signal.SIGINT)
    events = client.stream(client.submit(client.prepare("caption", IMAGE)))
    with pytest.raises(KeyboardInterrupt):
        next(events)
    assert transport.left.is_set()
    with pytest.raises(StopIteration):
        next(events)
    assert within(lambda: client.state("any")) is None


def test_an_iterator_that_another_thread_closes_ends(client: Client, transport: Interrupting) -> None:
    transport.script = lambda job: [QueuedEvent(id=job.id, seq=0), StartedEvent(id=job.id, seq=1, attempt=1)]
    events = client.stream(client.submit(client.prepare("caption", IMAGE)))
    assert [next(events).seq, next(events).seq] == [0, 1]
    rest: Future[list[Any]] = Future()
    following = threading.Thread(target=lambda: rest.set_result(list(events)), daemon=True)
    following.start()
    within(events.close)  # type: ignore[attr-defined]
    assert rest.result(SOON) == []
    assert transport.left.is_set()


def test_a_source_that_exits_leaves_the_client_alive(client: Client) -> None:
    def jobs() -> Iterator[Job]:
        raise SystemExit(3)
        yield

    with pytest.raises(SystemExit):
        within(lambda: list(client.gather(jobs())))
    assert within(lambda: client.caption(IMAGE)) == {"caption": "shapes on paper"}


def forked(call: Callable[[], Any]) -> str:
    """Call in a forked child, and return the outcome as text."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()

    def run() -> None:
        try:
            theirs.send(repr(call()))
        except Exception as error:
            theirs.send(f"{type(error).__name__}: {error}")

    child = context.Process(target=run, daemon=True)
    child.start()
    try:
        assert ours.poll(SOON), "the child hangs"
        return str(ours.recv())
    finally:
        child.kill()
        child.join()


def test_a_forked_child_opens_its_own_connection(redis_url: str) -> None:
    with Client(redis_url=redis_url) as client:
        job_id = client.submit(client.prepare("query", question="how many?"))
        assert forked(lambda: client.state(job_id)) == "<State.QUEUED: 'queued'>"
        assert forked(lambda: (client.state(job_id), client.close(), client.state(job_id))).startswith("ClientUnusable")
        assert client.state(job_id) == "queued", "and the parent goes on"


def test_a_stream_from_before_the_fork_is_refused_in_the_child(redis_url: str) -> None:
    with Client(redis_url=redis_url) as client:
        events = client.stream(client.submit(client.prepare("query", question="how many?")))
        assert next(events).seq == 0
        assert forked(lambda: next(events)).startswith("ClientUnusable: this was made before the process was forked")


def test_a_transport_from_before_the_fork_is_refused_in_the_child(client: Client) -> None:
    assert forked(lambda: client.state("any")).startswith("ClientUnusable")


def test_an_asynchronous_client_is_refused_in_another_loop(transport: Interrupting) -> None:
    client = AsyncClient(ProducerConfig(), transport=transport)
    assert asyncio.run(client.state("any")) is None
    for call in (client.state, client.result, client.cancel, lambda job_id: anext(client.stream(job_id))):
        with pytest.raises(ClientUnusable, match="another event loop"):
            asyncio.run(call("any"))  # type: ignore[arg-type]
    asyncio.run(client.aclose())
    with pytest.raises(ClientUnusable, match="closed"):
        asyncio.run(client.state("any"))
