"""A worker's settings: flags of `stoop worker` and `STOOP_*` variables, validated once at the start."""

from pathlib import Path
from typing import Literal

from annotated_types import Ge, Le
from pydantic import Field, SecretStr, ValidationError
from pydantic_core import ErrorDetails
from pydantic_settings import BaseSettings, SettingsConfigDict

from stoop_schemas import names
from stoop_schemas.allowed import AllowedBuckets
from stoop_schemas.names import DEFAULT_LANES
from stoop_schemas.signature import SigningKeys
from stoop_worker.config_fields import (
    AdapterPlace,
    BucketPlace,
    Buckets,
    Endpoint,
    Keys,
    ModelName,
    NamedSeconds,
    Names,
    Partitions,
    RedisUrl,
    Routes,
    named_seconds,
    route,
    split,
)
from stoop_worker.errors import ConfigError
from stoop_worker.models.catalog import Chosen, read_catalog

__all__ = ["WorkerConfig", "read_config"]


_CPU_PERMITS = 16
_DAY = 86_400
_TEN_YEARS = 315_360_000

_OUT_OF_RANGE = (
    *("greater_than_equal", "less_than_equal", "finite_number", "int_parsing", "int_parsing_size"),
    *("int_from_float", "float_parsing"),
)


class WorkerConfig(BaseSettings):
    """Every setting of a worker. A flag wins over its variable: `--page-size` over `STOOP_PAGE_SIZE`."""

    model_config = SettingsConfigDict(
        env_prefix="STOOP_",
        frozen=True,
        extra="ignore",
        env_ignore_empty=True,
        allow_inf_nan=False,
        protected_namespaces=(),
    )

    model: str = Field(description="the model: a short name, folder, file or Hugging Face id")
    revision: str | None = Field(default=None, description="commit or tag of the repository")
    model_name: ModelName | None = Field(
        default=None, description="name of the model in jobs; by default its short name"
    )
    serve_default: bool = Field(default=True, description="also answer jobs that name no model")
    device: Literal["auto", "cpu", "cuda"] = Field(default="auto", description="where the model runs")
    gpus: Names = Field(default=(), description="one worker for each GPU: all, or numbers or UUIDs")
    dtype: Literal["auto", "float32", "bfloat16"] = Field(
        default="auto", description="dtype of weights and KV cache; auto: bfloat16 on cuda, float32 on cpu"
    )
    threads: int | None = Field(default=None, ge=1, le=1024, description="torch's threads on the CPU")

    pages: int | None = Field(
        default=None, ge=1, le=1 << 31, description="pages in the KV cache; by default from free memory"
    )
    page_size: int = Field(default=16, ge=1, le=65_536, description="tokens in one page of the KV cache")
    max_batch: int = Field(default=64, ge=1, le=16_384, description="largest number of sequences in a step")
    max_context: int | None = Field(
        default=None, ge=1, le=1 << 24, description="longest sequence in tokens; by default from the catalog, or 32768"
    )
    token_budget: int | None = Field(
        default=None, ge=1, le=1 << 24, description="maximum tokens in a step; the default depends on the device"
    )
    crop_budget: int | None = Field(
        default=None, ge=1, le=65_536, description="maximum crops in a step; the default depends on the device"
    )
    stall_crops: int = Field(
        default=27, ge=1, le=65_536, description="largest number of crops in a step while other jobs run"
    )
    prefix_cache: bool = Field(default=True, description="keep images and prompts in the KV cache for reuse")
    fp8_linears: bool = Field(
        default=False, description="compute images, prompts and embedded texts in float8: faster, less exact"
    )
    jpegs_on_gpu: bool = Field(
        default=False,
        description="decode JPEGs by the GPU's own decoder: less CPU time; of a damaged one it decodes what it can",
    )
    fp8_cache: bool = Field(default=False, description="keep the KV cache in float8: twice as many tokens, less exact")
    attention: Literal["auto", "triton", "flashinfer"] = Field(
        default="auto", description="library for attention; auto: the fastest that is installed and works here"
    )
    adapters: AdapterPlace | None = Field(
        default=None,
        description="LoRA adapters: a folder of <id>.safetensors and <id>.pt, or an address with {id} in it"
        " (s3://, https://, hf://owner/repo@commit/) to fetch them from",
    )
    resident_adapters: int | None = Field(
        default=None,
        ge=1,
        le=1024,
        description="adapters on the device at a time; by default all of a folder, or 8 of an address",
    )
    adapter_rank: int = Field(default=32, ge=1, le=4096, description="largest rank of a resident adapter")
    adapter_cache: Path = Field(default=Path("~/.cache/stoop/adapters"), description="folder for fetched adapters")
    adapter_cache_bytes: int = Field(default=4 << 30, ge=1, le=1 << 44, description="largest size of adapter_cache")
    adapter_header: SecretStr | None = Field(
        default=None, description="HTTP header for the server of adapters, such as a key: 'Name: value'"
    )

    temperature: float = Field(default=0.5, ge=0, le=10, description="for jobs without a temperature")
    top_p: float = Field(default=0.3, ge=0, le=1, description="for jobs without a top_p")
    max_tokens: int = Field(default=768, ge=1, le=1 << 20, description="for jobs without a max_tokens")
    max_objects: int = Field(default=50, ge=1, le=1 << 20, description="for jobs without a max_objects")

    redis_url: RedisUrl = Field(
        default=SecretStr("redis://localhost:6379/0"),
        description="redis://, redis+sentinel://, redis+cluster:// (rediss: with TLS) or unix://",
    )
    lanes: Names = Field(
        default=DEFAULT_LANES, description="lanes to claim from, in order of priority (comma-separated)"
    )
    partitions: Partitions = Field(default=(0,), description="partitions to claim from (comma-separated)")
    permits: int | None = Field(
        default=None, ge=1, le=65_536, description="largest number of running jobs; by default 2 x max_batch, on cpu 16"
    )
    tenant_limit: int | None = Field(
        default=None, ge=1, le=65_536, description="largest number of running jobs of one tenant in a lane"
    )
    lease_seconds: float = Field(
        default=15.0, ge=1, le=3_600, description="seconds without a renewal until this worker counts as dead"
    )
    max_attempts: int = Field(default=3, ge=1, le=100, description="failed attempts until a job is a dead letter")
    # one job that crashes the engine does so in a full batch, in a small one and alone
    max_engine_faults: int = Field(
        default=4, ge=1, le=1_000, description="engine crashes in a row until the worker ends"
    )
    hang_seconds: float | None = Field(
        default=None,
        ge=0.5,
        le=_DAY,
        description="seconds without a step until the engine counts as hung; by default 60, on cpu 600",
    )
    restart_seconds: float = Field(
        default=600.0, ge=1, le=_DAY, description="longest start of a new engine after a crash"
    )
    result_ttl_seconds: int = Field(default=86_400, ge=1, le=_TEN_YEARS, description="lifetime of results")
    lane_result_ttl_seconds: NamedSeconds = Field(
        default=(), description="lifetime in single lanes: lane=seconds, comma-separated, such as bulk=3600"
    )
    log_ttl_seconds: int = Field(
        default=3_600,
        ge=1,
        le=_TEN_YEARS,
        description="lifetime of the events of a streamed job after its end",
    )
    output_bucket: BucketPlace | None = Field(
        default=None, description="bucket or bucket/prefix for large outputs of jobs that allow it; by default none"
    )
    output_bytes: int = Field(default=16_384, ge=0, le=1 << 30, description="smallest output for output_bucket")
    drain_seconds: float = Field(default=30.0, ge=0, le=_DAY, description="time for jobs to end at shutdown")

    s3_endpoint: Endpoint | None = Field(
        default=None, description="address of the object store; by default from AWS's variables"
    )
    s3_region: str | None = Field(default=None, description="region of the store; by default AWS's")
    s3_path_style: bool = Field(default=False, description="address buckets by path instead of by host name")
    allowed_buckets: Buckets = Field(
        default=(), description="allowed: bucket, bucket/prefix or tenant=bucket/prefix, comma-separated; empty: all"
    )
    allow_https: bool = Field(default=False, description="fetch from web servers on the public internet")
    https_hosts: Names = Field(default=(), description="web servers: host or *.domain, comma-separated; empty: all")
    fetch_timeout_seconds: float = Field(default=20.0, ge=0.1, le=3_600, description="time to fetch one file")
    fetch_concurrency: int = Field(default=16, ge=1, le=1_024, description="files fetched at once")
    max_image_bytes: int = Field(default=32 << 20, ge=1, le=1 << 32, description="largest encoded image")
    max_image_pixels: int = Field(default=64_000_000, ge=1, le=1 << 32, description="largest image, in pixels")
    max_audio_bytes: int = Field(default=128 << 20, ge=1, le=1 << 32, description="largest encoded audio file")
    max_audio_seconds: float = Field(default=14_400.0, ge=1, le=_DAY, description="longest audio, once decoded")
    max_fetched_bytes: int = Field(
        default=512 << 20, ge=1, le=1 << 40, description="memory for all images and audio fetched and not yet decoded"
    )
    max_decoded_bytes: int = Field(
        default=2 << 30, ge=1, le=1 << 40, description="memory for the pixels and the audio of all jobs in flight"
    )
    image_threads: int | None = Field(
        default=None, ge=1, le=256, description="decoding threads (a recording adds 2); by default one a core, up to 6"
    )

    signing_keys: Keys | None = Field(
        default=None, description="keyid:secret, comma-separated: run only jobs signed with one of them"
    )

    celery: Literal["auto", "on", "off"] = Field(
        default="auto", description="take jobs from Celery; auto: answer remote control after the first one"
    )
    celery_broker: SecretStr | None = Field(default=None, description="URL of Celery's broker; by default redis_url")
    celery_backend: SecretStr | None = Field(default=None, description="URL of Celery's results; by default redis_url")
    celery_routes: Routes = Field(
        default=(), description="queues of follow-up tasks: pattern=queue, comma-separated; by default `celery`"
    )

    ready_file: Path | None = Field(default=None, description="file that exists while the worker claims jobs")
    metrics_port: int | None = Field(
        default=None, ge=1, le=65_535, description="port of /metrics, /healthz, /readyz, /startupz; by default none"
    )
    metrics_host: str = Field(default="", description="address of metrics_port; by default all")
    log_level: Literal["debug", "info", "warning", "error"] = Field(default="info", description="lowest level logged")
    log_format: Literal["auto", "console", "json"] = Field(default="auto", description="auto: console on a terminal")

    @property
    def name(self) -> str | None:
        """The name by which jobs ask for the model; None if it has no name."""
        return self.model_name or self.chosen.name

    @property
    def chosen(self) -> Chosen:
        """The source that `model` and `revision` name."""
        return read_catalog().choose(self.model, self.revision)

    @property
    def fetches_adapters(self) -> bool:
        """True if adapters come from an address, and not from a folder."""
        return self.adapters is not None and "://" in self.adapters

    @property
    def models(self) -> tuple[str | None, ...]:
        """The models whose lanes are served; None stands for jobs that name no model."""
        named = () if self.name is None else (self.name,)
        return (None, *named) if self.serve_default else named

    @property
    def served_lanes(self) -> tuple[str, ...]:
        """The lanes of each of `models`, as they are in Redis."""
        return tuple(names.model_lane(lane, model) for model in self.models for lane in self.lanes)

    def permits_on(self, device: str) -> int:
        """Return the most jobs in flight: enough that the engine's next batch waits for nothing.

        On a CPU more than a few do not raise the number of jobs a second, and later jobs would wait for all of them.
        """
        if self.permits is not None:
            return self.permits
        return min(_CPU_PERMITS, 2 * self.max_batch) if device == "cpu" else 2 * self.max_batch

    @property
    def allowed(self) -> AllowedBuckets:
        """The parsed `allowed_buckets`."""
        return AllowedBuckets.read(self.allowed_buckets)

    @property
    def lane_result_ttls(self) -> dict[str, int]:
        """The parsed `lane_result_ttl_seconds`."""
        return dict(named_seconds(entry) for entry in self.lane_result_ttl_seconds)

    @property
    def routes(self) -> dict[str, str]:
        """The parsed `celery_routes`."""
        return dict(route(entry) for entry in self.celery_routes)

    @property
    def keys(self) -> SigningKeys | None:
        """The parsed `signing_keys`; None if jobs need no signature."""
        return SigningKeys.read(split(self.signing_keys.get_secret_value())) if self.signing_keys else None


def read_config(flags: dict[str, object]) -> WorkerConfig:
    """Read the configuration from the environment and `flags`, which win; raise `ConfigError` naming each fault."""
    given = {name: value for name, value in flags.items() if value is not None}
    try:
        config = WorkerConfig(**given)  # type: ignore[arg-type]
    except ValidationError as error:
        raise ConfigError("; ".join(_fault(entry) for entry in error.errors())) from None
    if not config.models:
        raise ConfigError("--no-serve-default (STOOP_SERVE_DEFAULT): no job could reach this worker: give --model-name")
    return config


def _fault(entry: ErrorDetails) -> str:
    name = str(entry["loc"][0])
    wanted = "give it" if entry["type"] == "missing" else entry["msg"].removeprefix("Value error, ")
    if len(entry["loc"]) == 1 and entry["type"] in _OUT_OF_RANGE:
        wanted = _range(name) or wanted
    return f"--{name.replace('_', '-')} (STOOP_{name.upper()}): {wanted}"


def _range(name: str) -> str:
    """Return a text about the numbers that a field takes; empty if it has no bounds."""
    bounds = WorkerConfig.model_fields[name].metadata
    least = next((bound.ge for bound in bounds if isinstance(bound, Ge)), None)
    most = next((bound.le for bound in bounds if isinstance(bound, Le)), None)
    return "" if least is None or most is None else f"give a number from {least} to {most}"
