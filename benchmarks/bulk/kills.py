"""Kills runs of `stoop bulk` and `stoop bulk-embed` in the middle: real Redis, S3 and a worker with a bundled model."""

import json
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from benchmarks.bulk.process import BulkProcess, draw_images
from stoop.demo.embedded import EmbeddedS3, embedded_redis, embedded_s3
from stoop.demo.recordings import find_recordings
from stoop.demo.worker_process import EMBEDS, HEARS, SEES, find_model, running_worker

__all__ = ["KINDS", "measure_kills"]

_BAD_SHARE: Final = 0.01
_BAD_RECORDINGS: Final = 0.05
_QUESTION: Final = "What is this?"
_TEXTS_PER_JOB, _IN_FLIGHT = "8", "64"


@dataclass(frozen=True, slots=True)
class _Rows:
    """The rows of a run, in order, with the command that runs over them; `bad` of them must fail.

    With `jobs` every row is a job of its own. `answers` names rows that must have the same answer.
    """

    command: str
    arguments: Sequence[str]
    names: Sequence[str]
    bad: int
    jobs: bool = True
    answers: Mapping[str, str] = field(default_factory=dict)


def measure_kills(kind: str, count: int, kills: int, folder: Path) -> dict[str, Any]:
    """Run over `count` rows, kill the process `kills` times, resume it, and count the rows in the end."""
    model, flags, write = KINDS[kind]
    with embedded_redis(folder / "redis") as redis, embedded_s3(folder / "s3") as s3:
        rows, out = write(count, folder, s3), folder / "out"
        arguments = [*rows.arguments, "--in-flight", _IN_FLIGHT, "--out", str(out)]
        environment = s3.environment | {
            "STOOP_REDIS_URL": redis.url,
            "STOOP_S3_ENDPOINT": s3.endpoint,
            "STOOP_S3_PATH_STYLE": "true",
        }
        with running_worker(folder, find_model(model), redis, s3, {"lanes": "interactive,bulk", **flags}):
            began = time.monotonic()
            killed_at = []
            for number in range(1, kills + 1):
                run = BulkProcess(arguments, environment, rows.command)
                killed_at.append(run.wait_until(count * number // (kills + 1)))
                run.kill()
                print(f"killed at {killed_at[-1]:,} of {count:,}", flush=True)
            code, output, errors = BulkProcess(arguments, environment, rows.command).finish()
            seconds = time.monotonic() - began
        print(output)
        if code != 0:
            raise SystemExit(errors)
        return _check(out, rows, _ended(redis.url), killed_at) | {"seconds": round(seconds, 1)}


def _write_images(count: int, folder: Path, s3: EmbeddedS3) -> _Rows:
    bad, store = round(count * _BAD_SHARE), s3.client()
    names = []
    for name, encoded in draw_images(count, bad):
        store.put_object(Bucket=s3.bucket, Key=f"photos/{name}", Body=encoded)
        names.append(f"s3://{s3.bucket}/photos/{name}")
    asked = ("--skill", "query", "--question", _QUESTION, "--max-tokens", "3", "--temperature", "0")
    return _Rows("bulk", [f"s3://{s3.bucket}/photos/", *asked], names, bad)


def _write_texts(count: int, folder: Path, s3: EmbeddedS3) -> _Rows:
    """Write texts of a few words; a bad line is no JSON, or its text is missing, a number, or far too long."""
    random_, path = random.Random(5), folder / "texts.jsonl"
    vocabulary = _words()
    broken = sorted(random_.sample(range(count), round(count * _BAD_SHARE)))
    with path.open("w") as file:
        for number in range(count):
            text = " ".join(random_.choices(vocabulary, k=random_.randint(3, 12)))
            line = json.dumps({"id": f"text-{number}", "text": text})
            if number in broken:
                kind = broken.index(number) % 4
                line = ["no JSON", '{"id": "alone"}', '{"text": 5}', json.dumps({"text": 1000 * text})][kind]
            file.write(f"{line}\n")
    names = [str(number) for number in range(1, count + 1)]
    return _Rows("bulk-embed", [str(path), "--texts-per-job", _TEXTS_PER_JOB], names, len(broken), jobs=False)


def _write_recordings(count: int, folder: Path, s3: EmbeddedS3) -> _Rows:
    """Put the bundled recordings into the store again and again; a bad one is a text, a cut header, or empty."""
    random_, store = random.Random(5), s3.client()
    files = [recording.path for recording in find_recordings()]
    broken = sorted(random_.sample(range(count), round(count * _BAD_RECORDINGS)))
    names, answers = [], {}
    for number in range(count):
        file = files[number % len(files)]
        key, body = f"talks/talk-{number:06}{file.suffix}", file.read_bytes()
        names.append(f"s3://{s3.bucket}/{key}")
        if number in broken:
            body = [b"this is no recording", body[:20], b""][broken.index(number) % 3]
        else:
            answers[names[-1]] = file.name
        store.put_object(Bucket=s3.bucket, Key=key, Body=body)
    asked = ("--skill", "transcribe", "--temperature", "0")
    return _Rows("bulk", [f"s3://{s3.bucket}/talks/", *asked], names, len(broken), answers=answers)


def _words() -> list[str]:
    return sorted({word for recording in find_recordings() for word in recording.english.split()})


_Write = Callable[[int, Path, EmbeddedS3], _Rows]

KINDS: Final[Mapping[str, tuple[str, Mapping[str, str], _Write]]] = {
    "images": (SEES, {"max-image-pixels": "1000000", "permits": "16"}, _write_images),
    "texts": (EMBEDS, {}, _write_texts),
    "recordings": (HEARS, {}, _write_recordings),
}
"""The kinds of rows, with the bundled model and the worker's options for each."""


def _ended(url: str) -> int:
    """Return the number of jobs that have ended; one that ran twice counts twice."""
    from redis import Redis

    from stoop_schemas import names

    with Redis.from_url(url, protocol=2) as redis:
        totals = redis.hgetall(names.totals(0))
    return sum(int(totals.get(state, 0)) for state in (b"completed", b"failed"))


def _check(out: Path, rows: _Rows, ran: int, killed_at: list[int]) -> dict[str, Any]:
    good, bad = list(_good(out)), [line["row"] for line in _lines(out / "errors.jsonl")]
    found = Counter([*good, *bad])
    if found != Counter(rows.names):
        raise SystemExit(f"{len(rows.names)} rows wanted, but {found.total()} found, {len(found)} of them different")
    if len(bad) != rows.bad:
        raise SystemExit(f"{len(bad)} rows failed, and {rows.bad} are bad")
    if rows.jobs and ran != len(rows.names):
        raise SystemExit(f"{ran} jobs ran for {len(rows.names)} rows")
    _check_answers(out, rows.answers)
    summary = json.loads((out / "summary.json").read_text())
    causes = {cause["code"]: cause["count"] for cause in summary["causes"]}
    print(f"{len(found):,} rows, each once; {ran:,} jobs ran; {sum(causes.values())} failed: {causes}")
    return {"rows": len(found), "jobs": ran, "killed_at": killed_at, "causes": causes}


def _good(out: Path) -> Iterator[str]:
    """Yield the rows with an answer: lines of results, or vectors in shards."""
    for path in out.glob("results-*.jsonl"):
        yield from (line["row"] for line in _lines(path))
    for path in out.glob("vectors-*.parquet"):
        from pyarrow import parquet

        yield from parquet.read_table(path, columns=["row"]).column("row").to_pylist()


def _check_answers(out: Path, answers: Mapping[str, str]) -> None:
    """Raise `SystemExit` unless copies of a recording have one transcript."""
    heard: dict[str, set[str]] = {}
    for path in out.glob("results-*.jsonl"):
        for line in _lines(path):
            if line["row"] in answers:
                heard.setdefault(answers[line["row"]], set()).add(line["output"]["transcript"]["text"])
    if differing := [name for name, texts in heard.items() if len(texts) != 1]:
        raise SystemExit(f"copies of {', '.join(differing)} have different transcripts")


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_bytes().splitlines()] if path.exists() else []
