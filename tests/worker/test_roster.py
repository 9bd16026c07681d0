import json
import os

from worker.jobs.publisher import Identity
from worker.roster import Entry


def test_an_entry_says_since_when_and_how_much() -> None:
    entry = Entry(Identity("w", "m"), ("interactive", "bulk"), 8)
    first, second = json.loads(entry.tell(1000, 3)), json.loads(entry.tell(2000, 5))
    assert (first["started_at"], second["started_at"]) == (1000, 1000)
    assert (first["in_flight"], second["in_flight"]) == (3, 5)
    assert (first["pid"], first["model"], first["permits"]) == (os.getpid(), "m", 8)
    assert first["lanes"] == ["interactive", "bulk"]
    assert set(first) == {"started_at", "host", "pid", "model", "lanes", "permits", "in_flight", "version"}
