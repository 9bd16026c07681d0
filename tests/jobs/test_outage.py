"""A worker's log lines about a Redis that goes away and returns."""

import pytest
from structlog.testing import capture_logs

from stoop_worker.errors import ConfigError, QueueUnavailable
from stoop_worker.jobs.outage import RedisOutage

AWAY = QueueUnavailable("Redis at h:1 cannot be reached")


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_an_outage_is_reported_once_then_once_a_minute_then_its_end() -> None:
    clock = Clock()
    outage = RedisOutage(clock)
    with capture_logs() as logs:
        for _ in range(150):
            outage.failed("claiming", AWAY)
            outage.failed("renewing the lease", AWAY)
            clock.now += 1.0
        assert outage.seconds == 150.0
        outage.succeeded("claiming")
        assert outage.seconds == 150.0, "one part alone does not know"
        outage.succeeded("renewing the lease")
        outage.succeeded("claiming")
    lines = [(entry["event"], entry.get("seconds")) for entry in logs]
    assert lines == [
        ("Redis is not available: this worker waits for it", None),
        ("Redis is still not available", 60),
        ("Redis is still not available", 120),
        ("Redis is available again", 150.0),
    ]
    assert logs[0]["error"] == str(AWAY)
    assert outage.seconds == 0.0


def test_another_outage_is_reported_again() -> None:
    outage = RedisOutage(Clock())
    with capture_logs() as logs:
        for _ in range(2):
            outage.failed("claiming", AWAY)
            outage.succeeded("claiming")
    assert len(logs) == 4


def test_a_block_notes_how_it_ends() -> None:
    clock = Clock()
    outage = RedisOutage(clock)
    with pytest.raises(QueueUnavailable), outage.noting("settling"):
        raise AWAY
    clock.now += 3.0
    with pytest.raises(ConfigError), outage.noting("settling"):
        raise ConfigError("nothing that passes by itself")
    assert outage.seconds == 3.0
    with outage.noting("settling"):
        pass
    assert outage.seconds == 0.0
