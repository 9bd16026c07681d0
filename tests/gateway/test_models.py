import pytest

from stoop.client.job_client import JobClient
from stoop.gateway.errors import ApiError
from stoop.gateway.models import Models
from stoop_schemas.allowed import AllowedBuckets
from stoop_schemas.worker import WorkerRecord
from tests.producer.scripted import ScriptedTransport


def models_of(queue: ScriptedTransport) -> Models:
    """The models of a gateway whose clock stands still."""
    client = JobClient(queue, allowed=AllowedBuckets(()), timeout_seconds=60.0)
    return Models(client, {}, clock=lambda: 0.0)


async def test_a_worker_that_has_just_become_ready_is_found_by_the_next_request() -> None:
    queue = ScriptedTransport()
    queue.records = []
    models = models_of(queue)
    with pytest.raises(ApiError, match="no worker serves the model 'demo'"):
        await models.resolve("demo")
    queue.records = [WorkerRecord(name="demo")]
    assert await models.resolve("demo") == "demo"


async def test_a_model_whose_worker_was_cut_off_before_the_gateway_started_is_known() -> None:
    queue = ScriptedTransport()
    queue.records, queue.lapsed = [], [WorkerRecord(name="demo", skills=("query",), permits=8)]
    models = models_of(queue)
    assert await models.resolve("demo") == "demo"
    found = await models.find("demo")
    assert (found.workers, found.permits, found.skills) == (0, 0, ("query",))


async def test_only_live_workers_of_a_model_are_counted() -> None:
    queue = ScriptedTransport()
    queue.records = [WorkerRecord(name="demo", max_context=64, permits=2)]
    queue.lapsed = [WorkerRecord(name="demo", max_context=32, permits=8)]
    found = await models_of(queue).find("demo")
    assert (found.workers, found.permits, found.max_context) == (1, 2, 64)
