import itertools

import pytest

from stoop.backoff import backoff
from stoop.client.outage import Retrying
from stoop.errors import QueueUnavailable, UploadFailed


class Server:
    """Refuses a number of calls, then answers."""

    def __init__(self, refusals: int, error: type[Exception] = QueueUnavailable) -> None:
        self.refusals, self.error = refusals, error

    async def call(self) -> str:
        if self.refusals:
            self.refusals -= 1
            raise self.error("gone")
        return "here"


class Pauses:
    """Remembers the pauses, and waits for none."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)


@pytest.mark.parametrize("error", [QueueUnavailable, UploadFailed])
async def test_a_call_is_repeated_after_longer_and_longer_pauses(error: type[Exception]) -> None:
    pauses, notes = Pauses(), []
    server = Server(9, error)
    assert await Retrying(pause=pauses, note=notes.append).run(server.call) == "here"
    assert notes == ["gone; trying again"] * 9
    bounds = [min(8.0, 0.5 * 2**failures) for failures in range(9)]
    assert all(most / 2 <= seconds <= most for seconds, most in zip(pauses.seconds, bounds, strict=True))


async def test_a_server_that_stays_away_is_given_up() -> None:
    with pytest.raises(QueueUnavailable):
        await Retrying(0.0, pause=Pauses()).run(Server(2).call)


async def test_a_server_that_never_answered_is_waited_for_only_on_request() -> None:
    retrying = Retrying(pause=Pauses(), needs_answer=True)
    server = Server(1)
    with pytest.raises(QueueUnavailable):
        await retrying.run(server.call)
    assert await retrying.run(server.call) == "here"
    server.refusals = 3
    assert await retrying.run(server.call) == "here"


async def test_other_errors_are_raised_at_once() -> None:
    pauses = Pauses()
    with pytest.raises(KeyError):
        await Retrying(pause=pauses).run(Server(1, KeyError).call)
    assert pauses.seconds == []


def test_a_wait_doubles_up_to_its_bound() -> None:
    waits = [max(backoff(failures, first=0.1, longest=5.0) for _ in range(200)) for failures in range(12)]
    assert all(later > earlier for earlier, later in itertools.pairwise(waits[:6]))
    assert waits[-1] <= 5.0
    assert backoff(10**9, first=0.1, longest=5.0) <= 5.0
