"""Connects to the object store of the settings."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

    from stoop.config import ProducerConfig

__all__ = ["connect_store"]


def connect_store(config: "ProducerConfig", *, connections: int = 10, attempts: int = 3) -> "S3Client":
    """Return a client that threads may share, with `connections` at once and `attempts` per call."""
    from boto3.session import Session
    from botocore.client import Config

    # boto3's default session keeps the first credentials that it read, so use our own
    return Session().client(
        "s3",
        endpoint_url=config.s3_endpoint,
        region_name=config.s3_region,
        config=Config(
            signature_version="s3v4",
            s3={"addressing_style": "path" if config.s3_path_style else "auto"},
            connect_timeout=5,
            read_timeout=60,
            max_pool_connections=connections,
            retries={"mode": "standard", "max_attempts": attempts},
            # not every store knows AWS's newer checksum headers
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
        ),
    )
