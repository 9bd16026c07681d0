import json
import os

from stoop_schemas.worker import WorkerRecord, read_record
from stoop_worker.config import read_config
from stoop_worker.engine_process.protocol import Ready
from stoop_worker.errors import QueueUnavailable
from stoop_worker.images import CropGeometry
from stoop_worker.jobs.backoff import Backoff
from stoop_worker.jobs.broker import Held
from stoop_worker.registration import Registration, describe, enter_registry
from tests.support.recording_broker import RecordingBroker

READY = Ready("vikhyatk/moondream2@9a7d", "digest", CropGeometry(), "cpu", ("query", "caption"), 2048)


def test_an_entry_has_its_start_and_its_load() -> None:
    registration = Registration(WorkerRecord(model="m", lanes=("interactive", "bulk"), permits=8))
    first, second = json.loads(registration.encode(1000, 3, {})), json.loads(registration.encode(2000, 5, {}))
    assert (first["started_at"], second["started_at"]) == (1000, 1000)
    assert (first["in_flight"], second["in_flight"]) == (3, 5)
    assert (first["pid"], first["model"], first["permits"]) == (os.getpid(), "m", 8)
    assert first["lanes"] == ["interactive", "bulk"]
    assert set(first) == set(WorkerRecord.__struct_fields__)


async def test_a_worker_enters_the_registry_as_soon_as_redis_is_there() -> None:
    class Away(RecordingBroker):
        async def extend(self, record: bytes = b"") -> Held:
            held = await super().extend(record)
            if self.extended < 3:
                raise QueueUnavailable("gone")
            return held

    broker, registration = Away(), Registration(WorkerRecord())
    await enter_registry(broker, lambda: registration.encode(broker.now(), 0, {}), Backoff(first=0.0))
    assert broker.extended == 3 and read_record(broker.records[-1]).pid == os.getpid()


def test_an_entry_has_the_speed_since_the_one_before() -> None:
    registration = Registration(WorkerRecord())
    speeds = []
    for now, read, written in (1000, 50, 7), (3000, 250, 27), (4000, 250, 27), (5000, 30, 4):
        figures = {"prefill_tokens_total": read, "decode_tokens_total": written}
        record = read_record(registration.encode(now, 0, figures))
        speeds.append((record.prompt_tokens_per_second, record.generated_tokens_per_second))
    assert speeds == [(0, 0), (100, 10), (0, 0), (30, 4)], "the last engine is a new one"


def test_a_worker_registers_its_model_skills_and_sizes() -> None:
    record = describe(read_config({"model": "moondream2", "max_batch": "8"}), READY, 16)
    assert (record.name, record.serves_default, record.model) == ("moondream2", True, READY.model)
    assert record.lanes == ("interactive", "bulk", "moondream2:interactive", "moondream2:bulk")
    assert (record.skills, record.max_context) == (("query", "caption"), 2048)
    assert (record.max_batch, record.permits, record.device) == (8, 16, READY.device)


def test_an_entry_is_read_back_unchanged() -> None:
    record = describe(read_config({"model": "moondream2", "serve_default": "false"}), READY, 16)
    read = read_record(Registration(record).encode(1000, 3, {}))
    assert (read.name, read.serves_default, read.lanes) == ("moondream2", False, record.lanes)
    assert (read.in_flight, read.started_at) == (3, 1000)


def test_only_the_valid_fields_of_a_foreign_entry_are_read() -> None:
    for packed in (b"{}", b"[]", b"no JSON", b"\xff"):
        assert read_record(packed) == WorkerRecord()
    packed = json.dumps({"name": 7, "lanes": "bulk", "permits": 4, "later": []}).encode()
    assert read_record(packed) == WorkerRecord(permits=4)
