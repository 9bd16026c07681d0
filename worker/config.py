"""What a worker can be told, by flags of `stoop worker` and by `STOOP_*` variables; validated once, at the start."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr, ValidationError
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from schemas.allowed import AllowedBuckets
from schemas.names import DEFAULT_LANES
from schemas.redis_url import read_redis_url
from schemas.signature import SigningKeys
from worker.errors import ConfigError

__all__ = ["WorkerConfig", "read_config"]


def _split(value: object) -> tuple[str, ...]:
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
    SigningKeys.read(_split(secret.get_secret_value()))
    return secret


def _route(entry: str) -> tuple[str, str]:
    pattern, equals, queue = entry.partition("=")
    if not (pattern and equals and queue):
        raise ValueError("each entry must be pattern=queue")
    return pattern, queue


_Names = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_split)]
_Partitions = Annotated[tuple[Annotated[int, Field(ge=0, le=99_999)], ...], NoDecode, BeforeValidator(_split)]
_Routes = Annotated[_Names, _readable(lambda entries: [_route(entry) for entry in entries])]
_Buckets = Annotated[_Names, _readable(AllowedBuckets.read)]
_Keys = Annotated[SecretStr, AfterValidator(_known_keys)]
_RedisUrl = Annotated[SecretStr, AfterValidator(_known_url)]


class WorkerConfig(BaseSettings):
    """Every setting of a worker. A flag wins over its variable: `--page-size` over `STOOP_PAGE_SIZE`."""

    model_config = SettingsConfigDict(env_prefix="STOOP_", frozen=True, extra="ignore", env_ignore_empty=True)

    model: str = Field(description="folder, file or Hugging Face repo id of the model")
    revision: str | None = Field(default=None, description="commit or tag of the repo")
    device: Literal["auto", "cpu", "cuda"] = Field(default="auto", description="where the model runs")
    dtype: Literal["auto", "float32", "bfloat16"] = Field(
        default="auto", description="of weights and KV cache; auto: bfloat16 on cuda, float32 on cpu"
    )
    threads: int | None = Field(default=None, ge=1, description="threads of torch on the CPU")

    pages: int | None = Field(default=None, ge=1, description="pages of KV cache; by default from free memory")
    page_size: int = Field(default=16, ge=1, description="tokens in a page")
    max_batch: int = Field(default=64, ge=1, description="most sequences in one step")
    token_budget: int | None = Field(default=None, ge=1, description="most tokens in one step; by default the device's")
    crop_budget: int | None = Field(default=None, ge=1, description="most crops in one step; by default the device's")
    stall_crops: int = Field(default=27, ge=1, description="most crops in one step while other jobs are being answered")
    prefix_cache: bool = Field(default=True, description="keep the KV of images and prompts for reuse")
    fp8_linears: bool = Field(default=False, description="compute images and prompts in float8: quicker, less exact")
    fp8_cache: bool = Field(default=False, description="keep the KV cache in float8: twice as many tokens, less exact")

    temperature: float = Field(default=0.5, ge=0, le=10, description="where a job names none")
    top_p: float = Field(default=0.3, ge=0, le=1, description="where a job names none")
    max_tokens: int = Field(default=768, ge=1, description="where a job names none")
    max_objects: int = Field(default=50, ge=1, description="where a job names none")

    redis_url: _RedisUrl = Field(
        default=SecretStr("redis://localhost:6379/0"),
        description="redis://, redis+sentinel://, redis+cluster:// (rediss: by TLS) or unix://",
    )
    lanes: _Names = Field(default=DEFAULT_LANES, description="lanes to claim from, first ones first (comma-separated)")
    partitions: _Partitions = Field(default=(0,), description="partitions to claim from (comma-separated)")
    permits: int | None = Field(default=None, ge=1, description="most jobs in flight; by default 2 x max_batch")
    tenant_limit: int | None = Field(default=None, ge=1, description="most jobs of a tenant in flight in a lane")
    lease_seconds: float = Field(default=15.0, ge=1, description="silence after which this worker counts as dead")
    max_attempts: int = Field(default=3, ge=1, le=100, description="runs of a job that keeps failing")
    # one job that crashes the engine does so in a full batch, in a small one and alone
    max_engine_faults: int = Field(default=4, ge=1, description="crashes of the engine in a row that end the worker")
    hang_seconds: float | None = Field(
        default=None,
        gt=0,
        description="without a step for so long, longer than any takes, the engine is hung; by default 60, on cpu 600",
    )
    restart_seconds: float = Field(default=600.0, gt=0, description="for another engine to get ready after a crash")
    result_ttl_seconds: int = Field(default=86_400, ge=1, description="how long results are kept")
    log_ttl_seconds: int = Field(default=3_600, ge=1, description="how long the events of an ended job are kept")
    drain_seconds: float = Field(default=30.0, ge=0, description="grace for jobs in flight at shutdown")

    s3_endpoint: str | None = Field(default=None, description="of the object store; by default the AWS variables'")
    s3_region: str | None = Field(default=None, description="of the object store; by default the AWS variables'")
    s3_path_style: bool = Field(default=False, description="address buckets by path instead of by host name")
    allowed_buckets: _Buckets = Field(
        default=(), description="bucket, bucket/prefix or tenant=bucket/prefix, comma-separated; empty: all"
    )
    allow_https: bool = Field(default=False, description="fetch images from web servers on the public internet")
    https_hosts: _Names = Field(default=(), description="web servers: host or *.domain, comma-separated; empty: all")
    fetch_timeout_seconds: float = Field(default=20.0, gt=0, description="for one image")
    fetch_concurrency: int = Field(default=16, ge=1, description="images fetched at once")
    max_image_bytes: int = Field(default=32 << 20, ge=1, description="of one encoded image")
    max_image_pixels: int = Field(default=64_000_000, ge=1, description="of one image")
    image_threads: int | None = Field(
        default=None, ge=1, description="threads that decode; by default one a core, 8 at most"
    )

    signing_keys: _Keys | None = Field(
        default=None, description="keyid:secret, comma-separated: run only jobs signed with one of them"
    )

    celery: Literal["auto", "on", "off"] = Field(
        default="auto", description="jobs from Celery; auto: remote control is answered from the first of them on"
    )
    celery_broker: SecretStr | None = Field(
        default=None, description="Celery's URL of its broker; by default the queue's"
    )
    celery_backend: SecretStr | None = Field(default=None, description="Celery's URL of its results; as the broker")
    celery_routes: _Routes = Field(
        default=(), description="pattern=queue, comma-separated: where tasks go that follow ours; by default `celery`"
    )

    ready_file: Path | None = Field(default=None, description="file written when jobs are claimed, removed at the end")
    metrics_port: int | None = Field(default=None, ge=1, le=65_535, description="of Prometheus metrics; off by default")
    log_level: Literal["debug", "info", "warning", "error"] = Field(default="info", description="least level logged")
    log_format: Literal["auto", "console", "json"] = Field(default="auto", description="auto: console on a terminal")

    @property
    def free_permits(self) -> int:
        """Most jobs in flight: enough that the engine's next batch waits for nothing."""
        return self.permits if self.permits is not None else 2 * self.max_batch

    @property
    def allowed(self) -> AllowedBuckets:
        """What `allowed_buckets` says."""
        return AllowedBuckets.read(self.allowed_buckets)

    @property
    def routes(self) -> dict[str, str]:
        """What `celery_routes` says."""
        return dict(_route(entry) for entry in self.celery_routes)

    @property
    def keys(self) -> SigningKeys | None:
        """What `signing_keys` says; None where jobs need no signature."""
        return SigningKeys.read(_split(self.signing_keys.get_secret_value())) if self.signing_keys else None


def read_config(flags: dict[str, object]) -> WorkerConfig:
    """Read the configuration from the environment and `flags`, which win; raise `ConfigError` naming each fault."""
    given = {name: value for name, value in flags.items() if value is not None}
    try:
        return WorkerConfig(**given)  # type: ignore[arg-type]
    except ValidationError as error:
        raise ConfigError("; ".join(_fault(entry["loc"], entry["msg"]) for entry in error.errors())) from None


def _fault(location: tuple[int | str, ...], message: str) -> str:
    name = str(location[0])
    wanted = "give it" if message == "Field required" else message.removeprefix("Value error, ")
    return f"--{name.replace('_', '-')} (STOOP_{name.upper()}): {wanted}"
