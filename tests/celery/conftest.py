"""One Redis, one stock Celery worker and one worker of ours for the whole folder."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import redis
from celery import Celery

from stoop.celery import configure
from stoop.demo.embedded import embedded_redis
from tests.celery.works import Process, close, gpu_worker, stock_worker

__all__ = ["CeleryDeployment", "deployment", "own"]


@dataclass(frozen=True)
class CeleryDeployment:
    """The shop's application, its Redis and its workers."""

    shop: Any
    redis_url: str
    redis: "redis.Redis[bytes]"
    gpu: Process
    stock: Process
    folder: Path

    def ledger(self, what: str) -> list[str]:
        """Return the lines that the shop's tasks have written since the last call."""
        lines = self.redis.lrange(f"ledger:{what}", 0, -1)
        self.redis.delete(f"ledger:{what}")
        return [line.decode() for line in lines]


@pytest.fixture(scope="session")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CeleryDeployment]:
    folder = tmp_path_factory.mktemp("deployment")
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("STOOP_REDIS_URL", raising=False)
        with embedded_redis(folder / "redis") as server:
            patch.delenv("CELERY_BROKER_URL", raising=False)
            from tests.celery import shop

            shop.app.conf.update(broker_url=server.url, result_backend=server.url)
            shop.app.set_default()
            with (
                redis.Redis.from_url(server.url) as client,
                gpu_worker(folder, "gpu", server.url) as gpu,
                stock_worker(folder, server.url) as stock,
            ):
                yield CeleryDeployment(shop, server.url, client, gpu, stock, folder)
                close(shop.app)


@pytest.fixture
def own(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Celery]:
    """An application with its own Redis."""
    monkeypatch.delenv("STOOP_SIGNING_KEYS", raising=False)
    app = configure(Celery("own", broker=redis_url, backend=redis_url, set_as_current=False))
    yield app
    close(app)
