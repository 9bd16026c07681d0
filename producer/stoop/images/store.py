"""Connects to the object store of the settings, and turns its refusals into errors that say what to change."""

from typing import TYPE_CHECKING, Final

from stoop.errors import ConfigError, UploadFailed
from stoop_schemas.store_errors import UNKNOWN_CALLER

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

    from stoop.config import ProducerConfig
    from stoop_schemas.address import ObjectAddress

__all__ = ["ABSENT", "connect_store", "no_answer", "refusal"]

ABSENT: Final = ("404", "NoSuchKey", "NoSuchVersion", "NotFound")
"""The store's codes for an object that is not there."""

_FORBIDDEN: Final = ("403", "AccessDenied")
_RIGHTS: Final = (
    "give these credentials the rights s3:GetObject and s3:ListBucket, and s3:PutObject for uploads; without"
    " s3:ListBucket, a missing object is refused too"
)
_CREDENTIALS: Final = (
    "check the AWS credentials, which are AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN, and check"
    " this machine's clock"
)


def connect_store(config: "ProducerConfig", *, connections: int = 10, attempts: int = 3) -> "S3Client":
    """Return a client that threads may share, with `connections` at once and `attempts` per call.

    Raises `ConfigError` for an invalid endpoint or region.
    """
    from boto3.session import Session
    from botocore.client import Config
    from botocore.exceptions import BotoCoreError

    settings = Config(
        signature_version="s3v4",
        s3={"addressing_style": "path" if config.s3_path_style else "auto"},
        connect_timeout=5,
        read_timeout=60,
        max_pool_connections=connections,
        retries={"mode": "standard", "max_attempts": attempts},
        # not every store knows AWS's newer checksum headers
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
    )
    try:
        # boto3's default session keeps the first credentials that it read, so use our own
        return Session().client("s3", endpoint_url=config.s3_endpoint, region_name=config.s3_region, config=settings)
    except (BotoCoreError, ValueError) as error:
        # the error's own text repeats the endpoint, which may contain credentials
        kind = type(error).__name__
        problem = f"the object store cannot be addressed ({kind}): check STOOP_S3_ENDPOINT and STOOP_S3_REGION"
        raise ConfigError(problem) from error


def no_answer(error: Exception) -> UploadFailed:
    """Return the error for a call that failed without an answer of the store."""
    from botocore.exceptions import NoCredentialsError, ParamValidationError

    if isinstance(error, NoCredentialsError):
        return UploadFailed("no credentials for the object store: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY")
    # other errors repeat the endpoint, which may contain credentials
    why = error if isinstance(error, ParamValidationError) else type(error).__name__
    return UploadFailed(f"the object store does not answer ({why}): check STOOP_S3_ENDPOINT and the network")


def refusal(code: str, address: "ObjectAddress") -> UploadFailed:
    """Return the error for the code with which the store has answered a call about this address."""
    refused = f"the object store refuses access to {address} ({code}):"
    if code in _FORBIDDEN:
        return UploadFailed(f"{refused} {_RIGHTS}", refused=True)
    if code in UNKNOWN_CALLER:
        return UploadFailed(f"{refused} {_CREDENTIALS}", refused=True)
    if code == "NoSuchBucket":
        problem = f"there is no bucket {address.bucket!r}: create it, or set STOOP_BUCKET to one that exists"
        return UploadFailed(problem, refused=True)
    return UploadFailed(f"the object store answered {code or 'an error'} for {address}")
