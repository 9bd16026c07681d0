"""Our worker answers Celery's remote control."""

import subprocess
import sys
from pathlib import Path

import pytest
from celery.exceptions import TaskRevokedError

from stoop.celery import query
from tests.celery.conftest import CeleryDeployment
from tests.celery.works import SECONDS, until


@pytest.fixture
def hostname(deployment: CeleryDeployment) -> str:
    query.delay(None, "hello").get(timeout=SECONDS)
    workers = [name.decode() for name in deployment.redis.hkeys("stoop:{0}:workers")]
    [ours] = [f"stoop@{name}" for name in workers if f"-{deployment.gpu.pid}-" in name]
    until(lambda: bool(deployment.shop.app.control.ping(timeout=0.5, destination=[ours])))
    return ours


def test_celery_inspect_ping(deployment: CeleryDeployment, hostname: str) -> None:
    ping = subprocess.run(
        [
            sys.executable,
            "-m",
            "celery",
            "--broker",
            deployment.redis_url,
            "inspect",
            "ping",
            "--destination",
            hostname,
        ],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    assert ping.returncode == 0, ping.stderr
    assert hostname in ping.stdout and "pong" in ping.stdout


def test_active_and_stats(deployment: CeleryDeployment, hostname: str) -> None:
    running = query.delay(None, "wait")
    inspect = deployment.shop.app.control.inspect(destination=[hostname], timeout=5)
    until(lambda: running.id in [one["id"] for one in inspect.active()[hostname]])
    [active] = inspect.active()[hostname]
    assert active["name"] == "stoop.query"
    assert (active["args"], active["kwargs"]) == ([], {})
    stats = inspect.stats()[hostname]
    assert stats["pid"] == deployment.gpu.pid
    assert stats["total"]["stoop.query"] >= 1
    running.revoke(terminate=True)
    with pytest.raises(TaskRevokedError):
        running.get(timeout=SECONDS)


def test_revoke_ends_a_running_job_and_one_that_waits(deployment: CeleryDeployment, hostname: str) -> None:
    running = query.delay(None, "wait")
    until(lambda: deployment.redis.hget(f"stoop:{{0}}:job:{running.id}", "state") == b"running")
    waiting = query.apply_async((None, "never"), countdown=3600)
    for revoked in (running, waiting):
        revoked.revoke()
        until(lambda: deployment.redis.hget(f"stoop:{{0}}:job:{revoked.id}", "state") == b"cancelled")  # noqa: B023
        # a stock worker that receives the revoke stores REVOKED too, at once and with another text
        with pytest.raises(TaskRevokedError):
            revoked.get(timeout=SECONDS)
        assert revoked.state == "REVOKED"


def test_other_commands_are_refused(deployment: CeleryDeployment, hostname: str) -> None:
    replies = deployment.shop.app.control.broadcast("shutdown_now", destination=[hostname], reply=True, timeout=5)
    assert "does not know" in replies[0][hostname]["error"]
    assert deployment.gpu.runs()


def test_revoking_an_unknown_id_does_no_harm(deployment: CeleryDeployment, hostname: str) -> None:
    deployment.shop.app.control.revoke(["../../etc", "x" * 500], reply=True, destination=[hostname], timeout=5)
    assert query.delay(None, "fine").get(timeout=SECONDS) == {"answer": "fine"}
