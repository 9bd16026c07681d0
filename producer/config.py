"""What a client needs to know, read once from arguments and the environment."""

from typing import Any, Self
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, ValidationError, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from producer.errors import ConfigError
from schemas import names

__all__ = ["ProducerConfig"]

_SCHEMES = ("redis", "rediss", "unix")


class ProducerConfig(BaseSettings):
    """Where the queue and the images are. Arguments win over `STOOP_*` variables, those over the defaults.

    `redis_url` may hold a password, so it is kept from repr and messages: print `redis_address`. `bucket` is
    where local images are uploaded to (none: only addresses can be sent). `s3_endpoint`, `s3_region` and
    `s3_path_style` are for stores other than AWS; credentials come from where AWS clients look for them.
    `timeout_seconds` bounds every wait for an answer that is given no time of its own.
    Raises `ConfigError` that names each value to change.
    """

    model_config = SettingsConfigDict(env_prefix="STOOP_", frozen=True, extra="forbid", env_ignore_empty=True)

    redis_url: SecretStr = SecretStr("redis://localhost:6379/0")
    bucket: str | None = Field(default=None, min_length=3, max_length=255)
    s3_endpoint: str | None = None
    s3_region: str | None = None
    s3_path_style: bool = False
    lane: str = names.DEFAULT_LANES[0]
    timeout_seconds: float = Field(default=300.0, gt=0)

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            # pydantic's own message would show the values, secrets among them
            raise ConfigError(_explain(error)) from None

    @field_validator("redis_url")
    @classmethod
    def _check_redis_url(cls, url: SecretStr) -> SecretStr:
        if urlsplit(url.get_secret_value()).scheme not in _SCHEMES:
            raise ValueError("must start with redis://, rediss:// or unix://")
        return url

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

    def replace(self, **values: Any) -> Self:
        """Return a copy with the values that are not None, checked anew."""
        given = {name: value for name, value in values.items() if value is not None}
        return type(self)(**(self.model_dump() | given))


def _explain(error: ValidationError) -> str:
    problems = (f"STOOP_{'_'.join(map(str, each['loc'])).upper()}: {each['msg']}" for each in error.errors())
    return "configuration: " + "; ".join(problems)
