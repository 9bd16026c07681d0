"""Sends the exam's requests as jobs: client, Redis, worker, S3, engine, and back."""

import asyncio
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.client import client_config
from deploy.demo_model.exam import Ask, Reply
from deploy.demo_model.pictures.drawing import encode
from deploy.demo_model.pictures.scenes import Scene
from stoop import AsyncClient
from stoop.config import ProducerConfig
from stoop.demo.embedded import EmbeddedS3, embedded_redis, embedded_s3
from stoop.demo.worker_process import LANE, find_model, running_worker
from stoop_schemas.skill import Output

__all__ = ["ask_queue"]

_SETTINGS = {"temperature": 0.0}
_SECONDS = 3600.0


def ask_queue(items: list[tuple[Scene, Ask]], model: str | None) -> list[Reply]:
    """Return the reply to each item, from servers and a worker that end with the call."""
    with tempfile.TemporaryDirectory(prefix="stoop-accuracy-") as name:
        folder = Path(name)
        with (
            embedded_redis(folder / "redis") as redis,
            embedded_s3(folder / "s3") as s3,
            running_worker(folder, find_model(model), redis, s3),
        ):
            _upload(items, s3)
            return asyncio.run(_ask_all(items, client_config(redis, s3, lane=LANE, timeout_seconds=_SECONDS)))


def _upload(items: list[tuple[Scene, Ask]], s3: EmbeddedS3) -> None:
    store = s3.client()
    for shown in {shown.seed: shown for shown, _ in items}.values():
        store.put_object(Bucket=s3.bucket, Key=_key(shown), Body=encode(shown))


def _key(shown: Scene) -> str:
    return f"scenes/{shown.seed}"


async def _ask_all(items: list[tuple[Scene, Ask]], config: ProducerConfig) -> list[Reply]:
    async with AsyncClient(config) as client:
        jobs = []
        for shown, wanted in items:
            image = f"s3://{config.bucket}/{_key(shown)}"
            jobs.append(await client.prepare(wanted.skill, image, settings=_SETTINGS, **_fields(wanted)))
        await client.submit_many(jobs)
        results = await asyncio.gather(*(client.result(job.id) for job in jobs))
    return [_reply(result.output) for result in results]


def _fields(wanted: Ask) -> dict[str, Any]:
    match wanted.skill:
        case "query":
            return {"question": wanted.text, "reasoning": wanted.reasoning}
        case "caption":
            return {"length": wanted.text}
        case _:
            return {"object": wanted.text}


def _reply(output: Output | None) -> Reply:
    assert output is not None, "a completed job has an output"
    if output.objects is not None:
        return [(box.x_min, box.y_min, box.x_max, box.y_max) for box in output.objects]
    if output.points is not None:
        return [(point.x, point.y) for point in output.points]
    return output.answer if output.answer is not None else output.caption or ""
