"""API keys: only their SHA-256 is stored, in a JSON file that is read again when it changes.

A key has 256 random bits, so a plain digest protects it, and a lookup by digest compares no secret byte by byte.
"""

import base64
import hashlib
import logging
import os
import secrets
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final

import msgspec

from stoop.errors import ConfigError
from stoop_schemas.job import MODEL_PATTERN, NAME_PATTERN

__all__ = [
    "OPEN",
    "ApiKey",
    "KeyFile",
    "KeyRing",
    "Scope",
    "digest",
    "new_secret",
    "read_keys",
    "secret_of",
    "write_keys",
]

log = logging.getLogger(__name__)

_LOOK_SECONDS: Final = 1.0
_NAME: Final = msgspec.Meta(pattern=f"^{NAME_PATTERN}$", max_length=128)
_MODEL: Final = msgspec.Meta(pattern=f"^{MODEL_PATTERN}$")
_POSITIVE: Final = msgspec.Meta(ge=1)


class Scope(StrEnum):
    """The right that a route asks for."""

    JOBS = "jobs"  # ask, follow, cancel; files and batches
    OPERATOR = "operator"  # look at every job, the queue, its workers and dead letters, and change them
    METRICS = "metrics"  # read the metrics, and look at the queue's counts; operators may, too


class ApiKey(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """One key as the file holds it. A job of the key must use its tenant, and one of its lanes and models.

    If `lanes` or `models` is empty, all are allowed. `concurrent` is the most requests in progress at once.
    """

    sha256: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]
    tenant: Annotated[str, _NAME] | None = None
    scopes: list[Scope] = msgspec.field(default_factory=lambda: [Scope.JOBS])
    lanes: list[Annotated[str, _NAME]] = []
    models: list[Annotated[str, _MODEL]] = []
    expires: datetime | None = None
    requests_per_minute: Annotated[int, _POSITIVE] | None = None
    tokens_per_minute: Annotated[int, _POSITIVE] | None = None
    concurrent: Annotated[int, _POSITIVE] | None = None
    id: Annotated[str, _NAME] = ""

    def opens(self, scope: Scope) -> bool:
        """Return whether the key gives this right."""
        return scope in self.scopes or (scope is Scope.METRICS and Scope.OPERATOR in self.scopes)

    def may_use(self, model: str | None) -> bool:
        """Return whether a job of the key may name this model; None is the default one."""
        return not self.models or model in self.models

    def is_expired(self, now: datetime) -> bool:
        """Return whether the key's time is over."""
        return self.expires is not None and now >= self.expires


OPEN: Final = ApiKey(sha256="0" * 64, scopes=list(Scope), id="open")
"""The rights of every caller of a gateway that asks for no key."""


class KeyFile(msgspec.Struct, forbid_unknown_fields=True):
    """The whole file: keys by their ids."""

    keys: dict[str, ApiKey] = {}


def secret_of(headers: Mapping[str, str]) -> str | None:
    """Return the API key of `Authorization: Bearer` or of `X-Moondream-Auth`, which may be empty."""
    scheme, _, secret = headers.get("authorization", "").partition(" ")
    bearer = secret.strip() if scheme.lower() == "bearer" else ""
    return bearer or headers.get("x-moondream-auth", "").strip() or None


def new_secret(key_id: str) -> str:
    """Return a new key, to be shown once."""
    return f"sk-stoop-{key_id}-{base64.urlsafe_b64encode(secrets.token_bytes(32)).decode().rstrip('=')}"


def digest(secret: str) -> str:
    """Return the stored form of a key."""
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).hexdigest()


def read_keys(path: Path) -> KeyFile:
    """Read the file; raise `ConfigError` if it cannot be read or is wrong."""
    try:
        found = msgspec.json.decode(path.read_bytes(), type=KeyFile)
    except OSError as error:
        raise ConfigError(f"cannot read the keys in {path}: {error.strerror}; `stoop keys new` makes them") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"the keys in {path} are wrong: {error}") from None
    for name, key in found.keys.items():
        if key.expires is not None and key.expires.tzinfo is None:
            raise ConfigError(f"the keys in {path} are wrong: `expires` of {name} needs a time zone, such as Z")
    return KeyFile({name: msgspec.structs.replace(key, id=name) for name, key in found.keys.items()})


def write_keys(path: Path, keys: KeyFile) -> None:
    """Replace the file at once, readable to its owner only; raise `ConfigError` if it cannot be written."""
    stored = KeyFile({name: msgspec.structs.replace(key, id="") for name, key in keys.keys.items()})
    beside = path.with_name(f"{path.name}.{os.getpid()}.new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(msgspec.json.format(msgspec.json.encode(stored)) + b"\n")
        beside.replace(path)
    except OSError as error:
        raise ConfigError(f"cannot write the keys to {path}: {error.strerror}") from None


class KeyRing:
    """The keys of a file. Checks once a second whether the file changed; a file that became wrong changes nothing."""

    def __init__(self, path: Path, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._path = path
        self._clock = clock
        self._look_at = 0.0
        self._seen: tuple[int, int, int] | None = None
        self._by_digest: dict[str, ApiKey] = {}
        self._read()

    def find(self, secret: str) -> ApiKey | None:
        """Return the key that is not expired, or None."""
        self._refresh()
        key = self._by_digest.get(digest(secret))
        return None if key is None or key.is_expired(datetime.now(UTC)) else key

    def _refresh(self) -> None:
        if self._clock() < self._look_at:
            return
        self._look_at = self._clock() + _LOOK_SECONDS
        try:
            if self._stat() != self._seen:
                self._read()
        except (ConfigError, OSError) as error:
            log.warning("the keys stay as they were: %s", error)

    def _read(self) -> None:
        seen = self._stat() if self._path.exists() else None
        self._by_digest = {key.sha256: key for key in read_keys(self._path).keys.values()}
        self._seen = seen

    def _stat(self) -> tuple[int, int, int]:
        stat = self._path.stat()
        return (stat.st_mtime_ns, stat.st_size, stat.st_ino)
