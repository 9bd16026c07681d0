"""One real worker with the demo's model, on a real Redis and a real S3 server, for all tests of whole flows."""

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from stoop import AsyncClient
from stoop.config import ProducerConfig
from stoop.demo.embedded import EmbeddedS3, embedded_redis
from stoop.demo.pictures import Picture, draw_pictures
from stoop.demo.worker_process import find_model, running_worker
from tests.flow.adapters import write_adapters
from tests.support.servers import free_port

__all__ = ["Service", "client", "service"]


@dataclass(frozen=True)
class Service:
    """A running service: where its Redis is, its S3 server, the worker's metrics, and a picture with its address."""

    redis_url: str
    s3: EmbeddedS3
    picture: Picture
    image: str
    config: ProducerConfig
    metrics_port: int

    @property
    def variables(self) -> dict[str, str]:
        """The variables by which the command line finds the service."""
        return {
            "STOOP_REDIS_URL": self.redis_url,
            "STOOP_BUCKET": self.s3.bucket,
            "STOOP_S3_ENDPOINT": self.s3.endpoint,
            "STOOP_S3_REGION": self.s3.region,
            "STOOP_S3_PATH_STYLE": "true",
            **self.s3.environment,
        }


@pytest.fixture(scope="session")
def service(s3: EmbeddedS3, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    folder: Path = tmp_path_factory.mktemp("service")
    [picture] = draw_pictures(1, seed=1)
    s3.client().put_object(Bucket=s3.bucket, Key="flow/shapes.png", Body=picture.encoded)
    port = free_port()
    flags = {"metrics-port": str(port), "lanes": "interactive,bulk", "max-image-pixels": "1000000", "threads": "1"}
    flags["adapters"] = str(write_adapters(folder / "adapters"))
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("STOOP_REDIS_URL", raising=False)
        with (
            embedded_redis(folder / "redis") as redis,
            running_worker(folder, find_model(None), redis, s3, flags),
        ):
            config = ProducerConfig(
                redis_url=redis.url,
                bucket=s3.bucket,
                s3_endpoint=s3.endpoint,
                s3_region=s3.region,
                s3_path_style=True,
                timeout_seconds=60,
            )
            with pytest.MonkeyPatch.context() as credentials:
                for name, value in s3.environment.items():
                    credentials.setenv(name, value)
                yield Service(redis.url, s3, picture, f"s3://{s3.bucket}/flow/shapes.png", config, port)


@pytest.fixture
async def client(service: Service) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(service.config) as client:
        yield client
