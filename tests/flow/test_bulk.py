"""Whole runs of `stoop bulk` on a real worker: killed in the middle, interrupted, from a folder."""

import json
import re
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from redis import Redis

from benchmarks.bulk.process import BulkProcess, draw_images
from stoop_schemas import names
from tests.bulk.folder import lines, rows
from tests.flow.conftest import Service

COUNT, BAD = 40, 4
QUERY = ("--skill", "query", "--question", "What is this?", "--max-tokens", "3", "--temperature", "0")


@pytest.fixture
def redis(service: Service) -> "Iterator[Redis[bytes]]":
    with Redis.from_url(service.redis_url, protocol=2) as redis:
        yield redis


def environment(service: Service) -> dict[str, str]:
    s3 = service.s3
    return s3.environment | {
        "STOOP_REDIS_URL": service.redis_url,
        "STOOP_BUCKET": s3.bucket,
        "STOOP_S3_ENDPOINT": s3.endpoint,
        "STOOP_S3_PATH_STYLE": "true",
    }


def ended(redis: "Redis[bytes]") -> int:
    """Return the number of jobs that have ended since the queue was made; one that ran twice counts twice."""
    totals = redis.hgetall(names.totals(0))
    return sum(int(totals.get(state, 0)) for state in (b"completed", b"failed"))


def test_a_run_killed_twice_has_every_row_once_and_runs_no_job_twice(
    service: Service, redis: "Redis[bytes]", tmp_path: Path
) -> None:
    keys = []
    for name, encoded in draw_images(COUNT, BAD):
        keys.append(f"s3://{service.s3.bucket}/killed/{name}")
        service.s3.client().put_object(Bucket=service.s3.bucket, Key=f"killed/{name}", Body=encoded)
    out = tmp_path / "out"
    arguments = [f"s3://{service.s3.bucket}/killed/", *QUERY, "--out", str(out), "--in-flight", "16", "--json"]
    before = ended(redis)

    for kill_at in (COUNT // 6, COUNT // 2):
        run = BulkProcess(arguments, environment(service))
        assert run.wait_until(kill_at) < COUNT
        run.kill()
    code, output, errors = BulkProcess(arguments, environment(service)).finish()

    assert code == 0, errors
    assert Counter(rows(out)) == Counter(keys)
    assert ended(redis) - before == COUNT
    summary = json.loads(output)
    assert (summary["finished"], summary["completed"], summary["failed"]) == (True, COUNT - BAD, BAD)
    assert {cause["code"]: cause["count"] for cause in summary["causes"]} == {
        "image_undecodable": 3,
        "image_too_large": 1,
    }
    assert all(line["output"]["answer"] for line in lines(out, "results-*"))
    assert {line["image"] for line in lines(out)} == set(keys)

    code, output, _ = BulkProcess(arguments, environment(service)).finish()
    assert (code, json.loads(output)["completed"]) == (0, COUNT - BAD)
    assert ended(redis) - before == COUNT, "a run that is done does nothing"


def test_a_folder_is_uploaded_once_and_bad_files_are_listed_by_cause(
    service: Service, redis: "Redis[bytes]", tmp_path: Path
) -> None:
    folder = tmp_path / "photos"
    (folder / "deep").mkdir(parents=True)
    for name, encoded in draw_images(10, 2):
        (folder / name).write_bytes(encoded)
        (folder / "deep" / name).write_bytes(encoded)
    before = {found["Key"] for found in uploads(service)}
    code, output, errors = BulkProcess(
        [str(folder), *QUERY, "--out", str(tmp_path / "out")], environment(service)
    ).finish()
    assert code == 0, errors
    # each content once; the text is not uploaded, the file that is cut short has a good header
    assert len({found["Key"] for found in uploads(service)} - before) == 9
    assert "20 images: 16 answered, 4 failed" in output
    assert "image_undecodable" in output
    assert sorted(rows(tmp_path / "out")) == sorted(
        f"{where}photo-{number:06}.png" for where in ("", "deep/") for number in range(10)
    )
    assert {line["image"] for line in lines(tmp_path / "out")} == {str(path) for path in folder.rglob("*.png")}


def test_the_first_ctrl_c_waits_for_jobs_in_flight_and_the_second_does_not(
    service: Service, redis: "Redis[bytes]", tmp_path: Path
) -> None:
    out = tmp_path / "out"
    batch = tmp_path / "batch.jsonl"
    line = {"skill": "query", "image": service.image, "question": "What is this?", "settings": {"max_tokens": 3}}
    batch.write_text("".join(json.dumps({"id": f"row-{number}", **line}) + "\n" for number in range(12)))
    arguments = [str(batch), "--out", str(out), "--in-flight", "4"]

    redis.sadd(names.paused(0), "bulk")
    run = BulkProcess(arguments, environment(service))
    try:
        run.wait_until(0)
        while redis.xlen(names.lane("bulk")) < 4:
            run.wait_until(0)
        run.process.send_signal(signal.SIGINT)
        run.wait_for("waiting for 4 images in flight; Ctrl-C again leaves at once")
        run.process.send_signal(signal.SIGINT)
        code, _, _ = run.finish()
        assert code == 130
        assert rows(out) == []

        run = BulkProcess(arguments, environment(service))
        run.wait_until(0)
        run.process.send_signal(signal.SIGINT)
        run.wait_for("images in flight; Ctrl-C again leaves at once")
    finally:
        redis.srem(names.paused(0), "bulk")
    code, _, errors = run.finish()
    assert code == 130
    assert "To resume: stoop bulk" in errors
    (in_flight,) = re.findall(r"waiting for (\d+) images", errors)
    assert len(rows(out)) == int(in_flight)
    code, _, _ = BulkProcess(arguments, environment(service)).finish()
    assert code == 0
    assert Counter(line["id"] for line in lines(out)) == Counter(f"row-{number}" for number in range(12))


def uploads(service: Service) -> list[dict[str, object]]:
    found = service.s3.client().list_objects_v2(Bucket=service.s3.bucket, Prefix=names.IMAGE_PREFIX)
    return [dict(each) for each in found.get("Contents", [])]
