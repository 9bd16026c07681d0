"""The demo from start to end. It always removes every process and file that it made, except the drawings."""

import asyncio
import contextlib
import json
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Console

from stoop.client.async_client import AsyncClient
from stoop.client.blocking import Client
from stoop.config import ProducerConfig
from stoop.demo.board import Board, Line
from stoop.demo.burst import DemoJob, plan_burst
from stoop.demo.child_server import ChildServer
from stoop.demo.embedded import EmbeddedRedis, EmbeddedS3, embedded_redis, embedded_s3
from stoop.demo.montage import draw_montage
from stoop.demo.neighbours import find_nearest, found_table
from stoop.demo.pictures import Picture, draw_pictures
from stoop.demo.recordings import find_recordings, hear, heard_table
from stoop.demo.worker_process import EMBEDS, HEARS, LANE, ended_early, find_model, running_worker
from stoop.draw import draw_output
from stoop_schemas.job import Job
from stoop_schemas.state import State

__all__ = ["run_demo"]

_PICTURES, _SEED = 8, 7
_SETTINGS = {"temperature": 0.0, "max_tokens": 64, "max_objects": 8}
_SECONDS = 300.0
_POLL_SECONDS = 0.25
_PLAIN_WIDTH = 170
_LEAST_RIGHT = 0.9
_MONTAGE = "montage.png"
_FOLDER = "demo"  # of the bucket


def run_demo(out: Path, model: str | None = None, *, console: Console | None = None) -> bool:
    """Run a burst of jobs, show it, and write the drawings to `out`.

    Returns whether every job completed and, with a trained model, nine of ten answers are right.
    """
    console = console or _console()
    everything, model = model is None, find_model(model)
    pictures = draw_pictures(_PICTURES, _SEED)
    board = Board(plan_burst(pictures), console)
    with tempfile.TemporaryDirectory(prefix="stoop-demo-") as name:
        folder = Path(name)
        with embedded_redis(folder / "redis") as redis, embedded_s3(folder / "s3") as s3:
            _upload(pictures, s3)
            console.print(f"Redis at {redis.url}, S3 at {s3.endpoint}; starting a worker on the CPU …", markup=False)
            with running_worker(folder, model, redis, s3) as worker:
                seconds = asyncio.run(_run_burst(board, worker, _config(redis, s3)))
            console.print(board.table())
            rest = [*_hear(folder, redis, s3, console), *_embed(folder, redis, s3, console)] if everything else []
    _write_drawings(board, out)
    completed = sum(line.state is State.COMPLETED for line in board.lines)
    right = sum(line.is_right for line in board.lines)
    count = len(board.lines)
    console.print(
        f"{completed} of {count} jobs completed in {seconds:.1f} s: {completed / seconds:.1f} jobs/s."
        f" Drawings are in {out}/, all of them in {out}/{_MONTAGE}"
    )
    if _is_untrained(model):
        console.print("This model is untrained, so its answers are noise. The demo shows only that jobs run.")
        return completed == count
    console.print(f"{right} of {count} answers are right.")
    if rest:
        console.print(f"{sum(rest)} of {len(rest)} recordings and texts are right.")
    return completed == count and right >= _LEAST_RIGHT * count and sum(rest) >= _LEAST_RIGHT * len(rest)


def _hear(folder: Path, redis: EmbeddedRedis, s3: EmbeddedS3, console: Console) -> list[bool]:
    """Transcribe the recordings by a worker of their own; return whether each is right."""
    recordings, store = find_recordings(), s3.client()
    for each in recordings:
        store.put_object(Bucket=s3.bucket, Key=f"{_FOLDER}/{each.path.name}", Body=each.path.read_bytes())
    with _client(folder / HEARS, HEARS, redis, s3) as client:
        heard = hear(client, recordings, f"s3://{s3.bucket}/{_FOLDER}")
    console.print(heard_table(heard))
    return [each.is_right for each in heard]


def _embed(folder: Path, redis: EmbeddedRedis, s3: EmbeddedS3, console: Console) -> list[bool]:
    """Embed the texts by a worker of their own; return whether each nearest sentence is right."""
    with _client(folder / EMBEDS, EMBEDS, redis, s3) as client:
        found = find_nearest(client)
    console.print(found_table(found))
    return [each.is_right for each in found]


@contextlib.contextmanager
def _client(folder: Path, model: str, redis: EmbeddedRedis, s3: EmbeddedS3) -> Iterator[Client]:
    """Run a worker with a bundled model, and connect to it."""
    folder.mkdir()
    with running_worker(folder, find_model(model), redis, s3), Client(_config(redis, s3)) as client:
        yield client


def _console() -> Console:
    console = Console(highlight=False)
    # a file or a pipe has no width of its own
    return console if console.is_terminal else Console(highlight=False, width=_PLAIN_WIDTH)


def _upload(pictures: Sequence[Picture], s3: EmbeddedS3) -> None:
    store = s3.client()
    for picture in pictures:
        store.put_object(Bucket=s3.bucket, Key=_key(picture), Body=picture.encoded, ContentType="image/png")


def _key(picture: Picture) -> str:
    return f"{_FOLDER}/{picture.name}.png"


def _config(redis: EmbeddedRedis, s3: EmbeddedS3) -> ProducerConfig:
    return ProducerConfig(
        redis_url=redis.url,
        bucket=s3.bucket,
        s3_endpoint=s3.endpoint,
        s3_region=s3.region,
        s3_path_style=True,
        lane=LANE,
        timeout_seconds=_SECONDS,
    )


async def _run_burst(board: Board, worker: ChildServer, config: ProducerConfig) -> float:
    """Submit every job at once and follow them all to their end; return the seconds it took."""
    with board:
        started = time.monotonic()
        following = asyncio.create_task(_follow_all(board, config))
        ended = asyncio.create_task(_wait_for_end(worker))
        try:
            await asyncio.wait({following, ended}, return_when=asyncio.FIRST_COMPLETED)
            if not following.done():
                raise ended_early(worker)
            await following
        finally:
            for task in (following, ended):
                task.cancel()
            await asyncio.gather(following, ended, return_exceptions=True)
        return time.monotonic() - started


async def _follow_all(board: Board, config: ProducerConfig) -> None:
    async with AsyncClient(config) as client, asyncio.TaskGroup() as group:
        jobs = [await _prepare(client, line.job) for line in board.lines]
        submitted = time.monotonic()
        await client.submit_many(jobs)
        for line, job in zip(board.lines, jobs, strict=True):
            line.submitted = submitted
            group.create_task(_follow(board, line, client, job.id))


async def _prepare(client: AsyncClient, demo_job: DemoJob) -> Job:
    image = f"s3://{client.config.bucket}/{_key(demo_job.picture)}" if demo_job.picture else None
    return await client.prepare(demo_job.skill, image, settings=_SETTINGS, stream=True, **demo_job.fields)


async def _follow(board: Board, line: Line, client: AsyncClient, job_id: str) -> None:
    async for event in client.stream(job_id, _SECONDS):
        board.update(line, event)


async def _wait_for_end(worker: ChildServer) -> None:
    while worker.process is not None and worker.process.poll() is None:
        await asyncio.sleep(_POLL_SECONDS)


def _write_drawings(board: Board, out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    for line in board.lines:
        picture, result = line.job.picture, line.result
        if picture is None or result is None or result.output is None:
            continue
        drawn = draw_output(picture.encoded, result.output, str(line.job.fields.get("object", "")))
        drawn.save(out / f"{line.number:02}-{line.job.skill}-{picture.name}.png")
    draw_montage(board.lines).save(out / _MONTAGE)


def _is_untrained(model: str) -> bool:
    config = Path(model) / "config.json"
    if not config.is_file():
        return False
    return bool(json.loads(config.read_text()).get("stoop", {}).get("untrained", False))
