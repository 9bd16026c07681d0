import asyncio

import pytest

from stoop.client.job_client import JobClient
from stoop.gateway.follower import Follower
from stoop_schemas.allowed import AllowedBuckets
from tests.producer.scripted import ScriptedTransport


class DefectiveTransport(ScriptedTransport):
    """A queue whose log cannot be read because of a defect."""

    async def log(self, job_id: str, after: int = -1) -> list[bytes]:
        raise ZeroDivisionError


async def test_a_defect_reaches_the_reader_who_would_otherwise_wait_for_ever() -> None:
    follower = Follower(JobClient(DefectiveTransport(), allowed=AllowedBuckets(()), timeout_seconds=60.0), "mine")
    async with asyncio.timeout(30):
        with pytest.raises(ZeroDivisionError):
            await follower.next()
