import inspect
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

import stoop
from stoop import AsyncClient, Client, ClientUnusable, InvalidJob, JobFailed
from stoop.config import ProducerConfig
from stoop_schemas.event import FinishedEvent
from stoop_schemas.failure import Failure, FailureCode
from stoop_schemas.result import Result
from tests.producer.scripted import ScriptedTransport, answer, failing

IMAGE = "s3://photos/cat.jpg"


@pytest.fixture
def transport() -> ScriptedTransport:
    return ScriptedTransport(answer)


@pytest.fixture
def client(transport: ScriptedTransport) -> Iterator[Client]:
    with Client(ProducerConfig(), transport=transport) as client:
        yield client


def test_skills_answer_as_those_of_the_asynchronous_client(client: Client) -> None:
    assert client.caption(IMAGE, "short") == {"caption": "shapes on paper"}
    assert client.query(IMAGE, "how many?") == {"answer": "two red circles"}
    assert len(client.detect(IMAGE, "cat")["objects"]) == 2
    assert client.point(IMAGE, "cat") == {"points": [{"x": 0.25, "y": 0.75}]}


@pytest.mark.parametrize("skill", ["caption", "query", "detect", "point"])
def test_skills_take_the_arguments_of_the_asynchronous_client(skill: str) -> None:
    method = getattr(Client, skill)
    assert inspect.signature(method) == inspect.signature(getattr(AsyncClient, skill))
    assert method.__doc__ == getattr(AsyncClient, skill).__doc__ and "See" not in method.__doc__
    assert not inspect.iscoroutinefunction(method)


def test_streams_are_plain_iterators(client: Client) -> None:
    assert list(client.caption(IMAGE, stream=True)["caption"]) == ["shapes", " ", "on paper"]
    job_id = client.submit(client.prepare("caption", IMAGE))
    *_, last = client.stream(job_id)
    assert isinstance(last, FinishedEvent)
    assert client.result(job_id) == last.result


def test_a_stream_that_is_left_unsubscribes(client: Client, transport: ScriptedTransport) -> None:
    [job_id] = client.submit_many([client.prepare("caption", IMAGE)])
    events = client.stream(job_id)
    assert next(events).seq == 0
    assert transport.watchers(job_id) == 1
    events.close()  # type: ignore[attr-defined]
    assert transport.watchers(job_id) == 0


async def test_it_works_where_a_loop_is_running(client: Client) -> None:
    assert client.caption(IMAGE) == {"caption": "shapes on paper"}


def test_gathered_jobs_may_be_prepared_while_they_are_pulled(client: Client, transport: ScriptedTransport) -> None:
    jobs = (client.prepare("query", question=f"question {number}", custom_id=str(number)) for number in range(50))
    outcomes = {job.custom_id: outcome for job, outcome in client.gather(jobs, window=4)}
    assert set(outcomes) == {str(number) for number in range(50)}
    assert all(isinstance(outcome, Result) for outcome in outcomes.values())


def test_a_client_closes_after_leaving_a_gathering(transport: ScriptedTransport) -> None:
    before = threading.active_count()
    with Client(ProducerConfig(), transport=transport) as client:
        for _ in client.gather((client.prepare("query", question="?") for _ in range(1000)), window=2):
            break
    assert threading.active_count() <= before + 1, "at most the thread that pulls, which ends with its pull"


def test_every_method_of_the_asynchronous_client_is_there(client: Client) -> None:
    renamed = {"aclose": "close"}
    there = {renamed.get(name, name) for name in dir(AsyncClient) if not name.startswith("_")}
    assert there <= set(dir(Client))
    for name in sorted(there - {"close"}):
        ours, theirs = (inspect.signature(getattr(kind, name)) for kind in (Client, AsyncClient))
        assert ours.parameters.keys() == theirs.parameters.keys(), name


def test_the_rest_is_mirrored_too(client: Client, transport: ScriptedTransport) -> None:
    [job] = [client.prepare("caption", IMAGE)]
    assert client.submit_each([job]) == [job.id]
    assert next(iter(client.stream(job.id, after=1))).seq == 2
    transport.states[job.id] = "running"
    assert client.state(job.id) == "running"
    assert client.encode_image(IMAGE).image_url == IMAGE
    assert client.cancel(job.id) == "running"


def test_a_closed_client_refuses_calls(transport: ScriptedTransport) -> None:
    client = Client(ProducerConfig(), transport=transport)
    client.close()
    with pytest.raises(ClientUnusable, match="closed"):
        client.caption(IMAGE)


def test_closing_ends_a_wait_in_another_thread() -> None:
    transport = ScriptedTransport()
    client = Client(ProducerConfig(), transport=transport, cancel_on_exit=True)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(client.query, IMAGE, "how many?")
        while not transport.subscribed.is_set():
            assert not waiting.done()
        client.close()
        with pytest.raises(ClientUnusable, match="closed while a call waited"):
            waiting.result()
    assert transport.cancelled == [job.id for job in transport.submitted]


def test_threads_share_one_client(client: Client, transport: ScriptedTransport) -> None:
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda number: client.query(IMAGE, f"question {number}"), range(32)))
    assert answers == [{"answer": "two red circles"}] * 32
    assert len({job.id for job in transport.submitted}) == 32


def test_errors_are_raised_in_the_caller(client: Client, transport: ScriptedTransport) -> None:
    with pytest.raises(InvalidJob, match="question"):
        client.query(IMAGE)
    transport.script = failing(Failure.of(FailureCode.INTERNAL, "broken"))
    with pytest.raises(JobFailed, match="broken"):
        client.caption(IMAGE)
    with pytest.raises(JobFailed, match="broken"):
        list(client.caption(IMAGE, stream=True)["caption"])


def test_closing_ends_the_thread_and_may_be_done_twice(transport: ScriptedTransport) -> None:
    before = threading.active_count()
    client = Client(ProducerConfig(), transport=transport)
    assert threading.active_count() == before + 1
    client.close()
    client.close()
    assert threading.active_count() == before
    assert transport.closed == 1


def test_the_package_lists_its_names_before_they_are_imported() -> None:
    assert {"Client", "AsyncClient", "JobFailed", "DeltaEvent"} <= set(dir(stoop))
