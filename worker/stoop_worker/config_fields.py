"""The types of a worker's settings: each reads its text, and refuses a wrong one with the reason."""

import re
from collections.abc import Callable, Iterable
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr
from pydantic_settings import NoDecode

from stoop_schemas.address import parse_object
from stoop_schemas.allowed import AllowedBuckets
from stoop_schemas.job import MODEL_PATTERN, NAME_PATTERN
from stoop_schemas.redis_url import read_redis_url
from stoop_schemas.signature import SigningKeys
from stoop_worker.jobs.fetch.adapter_source import check_place

__all__ = [
    "AdapterPlace",
    "BucketPlace",
    "Buckets",
    "Endpoint",
    "Keys",
    "ModelName",
    "NamedSeconds",
    "Names",
    "Partitions",
    "RedisUrl",
    "Routes",
    "named_seconds",
    "route",
    "split",
]


def split(value: object) -> tuple[str, ...]:
    """Return the parts of a text between commas, and any other value as a tuple."""
    if not isinstance(value, str):
        return tuple(value)  # type: ignore[arg-type]
    return tuple(part.strip() for part in value.split(",") if part.strip())


def _known_url(url: SecretStr) -> SecretStr:
    read_redis_url(url.get_secret_value())
    return url


def _readable(read: Callable[[Iterable[str]], object]) -> AfterValidator:
    """Check that `read` understands the entries, and keep them as they are."""

    def check(entries: tuple[str, ...]) -> tuple[str, ...]:
        read(entries)
        return entries

    return AfterValidator(check)


def _known_keys(secret: SecretStr) -> SecretStr:
    SigningKeys.read(split(secret.get_secret_value()))
    return secret


def route(entry: str) -> tuple[str, str]:
    """Return the two sides of pattern=queue; raises ValueError."""
    pattern, equals, queue = entry.partition("=")
    if not (pattern and equals and queue):
        raise ValueError("each entry must be pattern=queue")
    return pattern, queue


def named_seconds(entry: str) -> tuple[str, int]:
    """Return the two sides of name=seconds; raises ValueError."""
    name, _, seconds = entry.rpartition("=")
    if not re.fullmatch(NAME_PATTERN, name) or not re.fullmatch(r"[1-9][0-9]{0,8}", seconds):
        raise ValueError("each entry must be name=seconds, such as bulk=3600")
    return name, int(seconds)


def _adapter_place(place: str) -> str:
    return check_place(place) if "://" in place else place


def _model_name(name: str) -> str:
    if not re.fullmatch(MODEL_PATTERN, name) or name == "quarantine":
        raise ValueError("must be 1 to 64 characters of A-Z a-z 0-9 . _ -")
    return name


def _web_address(endpoint: str) -> str:
    parts = urlsplit(endpoint)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise ValueError("write https://host[:port], or http://host[:port]")
    _ = parts.port  # raises ValueError for one that is out of range
    return endpoint


def _bucket_place(place: str) -> str:
    parse_object(f"s3://{place.rstrip('/')}/any")
    return place


Endpoint = Annotated[str, AfterValidator(_web_address)]
AdapterPlace = Annotated[str, AfterValidator(_adapter_place)]
BucketPlace = Annotated[str, AfterValidator(_bucket_place)]
ModelName = Annotated[str, AfterValidator(_model_name)]
Names = Annotated[tuple[str, ...], NoDecode, BeforeValidator(split)]
Partitions = Annotated[tuple[Annotated[int, Field(ge=0, le=99_999)], ...], NoDecode, BeforeValidator(split)]
Routes = Annotated[Names, _readable(lambda entries: [route(entry) for entry in entries])]
NamedSeconds = Annotated[Names, _readable(lambda entries: [named_seconds(entry) for entry in entries])]
Buckets = Annotated[Names, _readable(AllowedBuckets.read)]
Keys = Annotated[SecretStr, AfterValidator(_known_keys)]
RedisUrl = Annotated[SecretStr, AfterValidator(_known_url)]
