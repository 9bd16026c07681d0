"""Celery's remote control speaks with our worker."""

import subprocess
import sys
from pathlib import Path

import pytest
from celery.exceptions import TaskRevokedError

from producer.celery import query
from tests.celery.conftest import Street
from tests.celery.works import SECONDS, until


@pytest.fixture
def hostname(street: Street) -> str:
    query.delay(None, "hello").get(timeout=SECONDS)
    workers = [name.decode() for name in street.redis.hkeys("stoop:{0}:workers")]
    [ours] = [name for name in workers if f"-{street.gpu.pid}-" in name]
    return f"stoop@{ours}"


def test_celery_inspect_ping(street: Street, hostname: str) -> None:
    said = subprocess.run(
        [sys.executable, "-m", "celery", "--broker", street.redis_url, "inspect", "ping", "--destination", hostname],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    assert said.returncode == 0, said.stderr
    assert hostname in said.stdout and "pong" in said.stdout


def test_active_and_stats(street: Street, hostname: str) -> None:
    running = query.delay(None, "wait")
    inspect = street.shop.app.control.inspect(destination=[hostname], timeout=5)
    until(lambda: running.id in [one["id"] for one in inspect.active()[hostname]])
    [active] = inspect.active()[hostname]
    assert active["name"] == "stoop.query"
    assert (active["args"], active["kwargs"]) == ([], {})
    stats = inspect.stats()[hostname]
    assert stats["pid"] == street.gpu.pid
    assert stats["total"]["stoop.query"] >= 1
    running.revoke(terminate=True)
    with pytest.raises(TaskRevokedError):
        running.get(timeout=SECONDS)


def test_revoke_ends_a_running_job_and_one_that_waits(street: Street, hostname: str) -> None:
    running = query.delay(None, "wait")
    until(lambda: street.redis.hget(f"stoop:{{0}}:job:{running.id}", "state") == b"running")
    waiting = query.apply_async((None, "never"), countdown=3600)
    for revoked in (running, waiting):
        revoked.revoke()
        until(lambda: street.redis.hget(f"stoop:{{0}}:job:{revoked.id}", "state") == b"cancelled")  # noqa: B023
        # a stock worker that hears of it writes so too, at once and in other words
        with pytest.raises(TaskRevokedError):
            revoked.get(timeout=SECONDS)
        assert revoked.state == "REVOKED"


def test_other_orders_are_refused(street: Street, hostname: str) -> None:
    asked = street.shop.app.control.broadcast("shutdown_now", destination=[hostname], reply=True, timeout=5)
    assert "does not know" in asked[0][hostname]["error"]
    assert street.gpu.runs()


def test_what_is_no_job_can_be_revoked_too(street: Street, hostname: str) -> None:
    street.shop.app.control.revoke(["../../etc", "x" * 500], reply=True, destination=[hostname], timeout=5)
    assert query.delay(None, "fine").get(timeout=SECONDS) == {"answer": "fine"}
