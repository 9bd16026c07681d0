"""A worker with `--adapters`: each job is answered by the adapter that it names, or fails alone."""

import asyncio

from stoop import AsyncClient
from stoop.errors import JobFailed
from stoop_schemas.failure import Failure, FailureCode
from stoop_schemas.job import Job
from stoop_schemas.result import Result
from stoop_schemas.state import State
from tests.flow.adapters import BROKEN, TUNED
from tests.flow.conftest import Service

UNKNOWN = "nobody@7"


async def test_a_job_with_an_unknown_or_a_broken_adapter_fails_alone(client: AsyncClient, service: Service) -> None:
    async def result(job: Job) -> Result:
        try:
            return await client.result(job.id)
        except JobFailed as failed:
            return failed.result

    async def asked(*adapters: str | None) -> list[Result]:
        settings = [{"temperature": 0.0, "max_tokens": 48, "adapter": adapter} for adapter in adapters]
        jobs = [await client.prepare("caption", service.image, settings=each) for each in settings]
        await client.submit_many(jobs)
        return list(await asyncio.gather(*(result(job) for job in jobs)))

    plain, unknown, tuned, broken = await asked(None, UNKNOWN, TUNED, BROKEN)
    assert [plain.status, tuned.status] == [State.COMPLETED] * 2
    assert _named(plain, service) and not _named(tuned, service), "the adapter changes its own job's caption alone"
    assert unknown.failure == Failure(
        FailureCode.INVALID_ARGUMENT, f"there is no adapter {UNKNOWN!r} here: check its id", False
    )
    assert broken.failure is not None and broken.failure.code is FailureCode.INVALID_ARGUMENT
    assert broken.failure.message.startswith(f"the adapter {BROKEN!r} cannot be used: ")


def _named(result: Result, service: Service) -> bool:
    """Return whether the caption names the picture's shapes, as the demo's model does."""
    assert result.output is not None and result.output.caption is not None
    return all(shape.name in result.output.caption for shape in service.picture.shapes)
