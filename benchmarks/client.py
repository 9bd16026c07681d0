"""The settings of a client of a Redis and an S3 server that a benchmark has started."""

from stoop.config import ProducerConfig
from stoop.demo.embedded import EmbeddedRedis, EmbeddedS3
from stoop_schemas.names import DEFAULT_LANES

__all__ = ["client_config"]


def client_config(
    redis: EmbeddedRedis, s3: EmbeddedS3, *, lane: str = DEFAULT_LANES[0], timeout_seconds: float = 600
) -> ProducerConfig:
    """Return the settings of a client whose jobs go to `lane`."""
    return ProducerConfig(
        redis_url=redis.url, bucket=s3.bucket, s3_path_style=True, lane=lane, timeout_seconds=timeout_seconds
    )
