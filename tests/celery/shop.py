"""A user's Celery application: its own tasks run on a stock Celery worker, the skills on ours.

Celery reads the addresses from `CELERY_BROKER_URL` and `CELERY_RESULT_BACKEND`.
"""

import base64
import os
import zlib
from struct import pack
from typing import Any

import redis
from celery import Celery

from stoop.celery import configure

__all__ = ["app", "collect", "data_uri", "draw", "flaky", "mourn", "shout"]

app = configure(Celery("shop", result_backend=os.environ.get("CELERY_RESULT_BACKEND")))


def data_uri(shade: int) -> str:
    """Return a picture of 2 x 2 pixels of one shade as a data URI."""
    rows = b"".join(b"\0" + bytes([shade] * 2) for _ in range(2))
    header = pack(">IIBBBBB", 2, 2, 8, 0, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(rows)), (b"IEND", b""))
    png = b"\x89PNG\r\n\x1a\n" + b"".join(
        pack(">I", len(data)) + kind + data + pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    )
    return f"data:image/png;base64,{base64.b64encode(png).decode()}"


def record(page: str, value: object) -> None:
    """Write a line into the ledger, bypassing Celery."""
    with redis.Redis.from_url(os.environ["CELERY_BROKER_URL"]) as ledger:
        ledger.rpush(f"ledger:{page}", str(value))


@app.task(name="shop.draw")
def draw(shade: int) -> str:
    return data_uri(shade)


@app.task(name="shop.shout")
def shout(answer: dict[str, Any]) -> str:
    shouted = str(answer["answer"]).upper()
    record("shout", shouted)
    return shouted


@app.task(name="shop.collect")
def collect(answers: list[dict[str, Any]]) -> list[str]:
    collected = sorted(answer["answer"] for answer in answers)
    record("collect", ",".join(collected))
    return collected


@app.task(name="shop.mourn")
def mourn(task_id: str) -> None:
    record("mourn", f"{task_id} {app.AsyncResult(task_id).result}")


@app.task(bind=True, name="shop.flaky", max_retries=3)
def flaky(self: Any, answer: dict[str, Any]) -> dict[str, Any]:
    record("flaky", self.request.retries)
    if self.request.retries < 2:
        raise self.retry(countdown=0)
    return answer
