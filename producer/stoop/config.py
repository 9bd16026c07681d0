"""A client's settings, read once from arguments and the environment."""

import re
from typing import Annotated, Any, Self
from urllib.parse import urlsplit

from pydantic import BeforeValidator, Field, SecretStr, ValidationError, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from stoop.errors import ConfigError
from stoop_schemas import names
from stoop_schemas.allowed import AllowedBuckets
from stoop_schemas.job import NAME_PATTERN
from stoop_schemas.redis_url import read_redis_url
from stoop_schemas.signature import SigningKeys

__all__ = ["ProducerConfig"]

_PREFIX = re.compile(r"([\w.!*'()-]+/){1,8}", re.ASCII)
_BOUND = re.compile(rf"{NAME_PATTERN}=[1-9][0-9]{{0,14}}")


def _split(value: object) -> tuple[str, ...]:
    if not isinstance(value, str):
        return tuple(value)  # type: ignore[arg-type]
    return tuple(part.strip() for part in value.split(",") if part.strip())


class ProducerConfig(BaseSettings):
    """The addresses of the queue and the images.

    Arguments win over `STOOP_*` variables, which win over the defaults.

    `redis_url` may hold a password, so it is kept from repr and messages: print `redis_address`. Credentials of the
    store come from the usual AWS sources.

    Raises `ConfigError` that names each value to change.
    """

    model_config = SettingsConfigDict(env_prefix="STOOP_", frozen=True, extra="forbid", env_ignore_empty=True)

    redis_url: SecretStr = Field(
        default=SecretStr("redis://localhost:6379/0"), description="address of Redis or of a Redis Cluster"
    )
    bucket: str | None = Field(
        default=None,
        min_length=3,
        max_length=255,
        description="bucket for uploads of local images; without it, every image must be an address",
    )
    upload_prefix: str = Field(default=names.IMAGE_PREFIX, description="folder of the uploads in the bucket")
    s3_endpoint: str | None = Field(default=None, description="address of an object store other than AWS's")
    s3_region: str | None = Field(default=None, description="region of the object store")
    s3_path_style: bool = Field(
        default=False,
        description="put the bucket's name into the path of a URL; most object stores other than AWS's need this",
    )
    allowed_buckets: Annotated[tuple[str, ...], NoDecode, BeforeValidator(_split)] = Field(
        default=(),
        description="the client refuses images outside `bucket`, `bucket/prefix` or `tenant=bucket/prefix` "
        "(comma-separated); if this is empty, the workers decide",
    )
    signing_keys: SecretStr = Field(
        default=SecretStr(""), description="`keyid:secret`, comma-separated; the client signs jobs with the first key"
    )
    lane: str = Field(default=names.DEFAULT_LANES[0], description="lane of jobs that name no lane")
    job_model: str | None = Field(
        default=None,
        description="short name of the model for jobs that name no model; without it, the default model answers them",
    )
    lane_bounds: Annotated[tuple[str, ...], NoDecode, BeforeValidator(_split)] = Field(
        default=(),
        description="maximum number of jobs in a lane, as `lane=jobs` (comma-separated), by default a million; "
        "if a lane is full, `submit` raises `QueueFull`",
    )
    tenant_bound: int | None = Field(default=None, ge=1, description="maximum number of jobs of one tenant in a lane")
    timeout_seconds: float = Field(
        default=300.0,
        gt=0,
        description="longest wait in seconds for a result or an event, if the call has no `timeout`",
    )
    store_outputs: bool = Field(
        default=False,
        description="let workers put large outputs into the object store, from which this client reads them",
    )

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            # pydantic's own message would show the values, secrets among them
            raise ConfigError(_explain(error)) from None

    @field_validator("redis_url")
    @classmethod
    def _check_redis_url(cls, url: SecretStr) -> SecretStr:
        read_redis_url(url.get_secret_value())
        return url

    @field_validator("allowed_buckets")
    @classmethod
    def _check_allowed_buckets(cls, entries: tuple[str, ...]) -> tuple[str, ...]:
        AllowedBuckets.read(entries)
        return entries

    @field_validator("signing_keys")
    @classmethod
    def _check_signing_keys(cls, secret: SecretStr) -> SecretStr:
        SigningKeys.read(_split(secret.get_secret_value()))
        return secret

    @field_validator("lane_bounds")
    @classmethod
    def _check_lane_bounds(cls, entries: tuple[str, ...]) -> tuple[str, ...]:
        for entry in entries:
            if not _BOUND.fullmatch(entry):
                raise ValueError("must be lane=jobs with at least one job, such as bulk=50000")
        return entries

    @field_validator("upload_prefix")
    @classmethod
    def _check_upload_prefix(cls, prefix: str) -> str:
        if not _PREFIX.fullmatch(prefix) or not {".", ".."}.isdisjoint(prefix.split("/")):
            raise ValueError("must be a folder in the bucket that ends with /, such as team-a/uploads/")
        return prefix

    @field_validator("s3_endpoint")
    @classmethod
    def _check_s3_endpoint(cls, endpoint: str | None) -> str | None:
        if endpoint is not None and urlsplit(endpoint).scheme not in ("http", "https"):
            raise ValueError("must start with http:// or https://")
        return endpoint

    @property
    def redis_address(self) -> str:
        """The Redis URL without user and password."""
        parts = urlsplit(self.redis_url.get_secret_value())
        return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="").geturl()

    @property
    def allowed(self) -> AllowedBuckets:
        """The parsed `allowed_buckets`."""
        return AllowedBuckets.read(self.allowed_buckets)

    @property
    def bounds(self) -> dict[str, int]:
        """The parsed `lane_bounds`."""
        return {lane: int(jobs) for lane, _, jobs in (entry.rpartition("=") for entry in self.lane_bounds)}

    @property
    def lanes(self) -> set[str]:
        """The lanes that the configuration names."""
        return {self.lane, *self.bounds}

    @property
    def keys(self) -> SigningKeys | None:
        """The parsed `signing_keys`; None if jobs are not signed."""
        return SigningKeys.read(_split(self.signing_keys.get_secret_value()))

    def replace(self, **values: Any) -> Self:
        """Return a copy with the values that are not None, checked again."""
        given = {name: value for name, value in values.items() if value is not None}
        return type(self)(**(self.model_dump() | given))


def _explain(error: ValidationError) -> str:
    return "configuration: " + "; ".join(_problem(dict(each)) for each in error.errors())


def _problem(found: dict[str, Any]) -> str:
    name = "_".join(map(str, found["loc"]))
    if found["type"] == "extra_forbidden":
        return f"there is no setting {name!r}; known are {', '.join(ProducerConfig.model_fields)}"
    return f"STOOP_{name.upper()}: {found['msg'].removeprefix('Value error, ')}"
