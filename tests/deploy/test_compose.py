"""docker-compose.yml is well formed, and names only things that exist."""

import json
import re
from pathlib import Path
from typing import Any, get_type_hints

import pytest
import yaml
from jsonschema import Draft202012Validator
from pydantic_settings import BaseSettings

from stoop.config import ProducerConfig
from stoop.exporter.options import ExporterOptions
from stoop.gateway.options import ServeOptions
from stoop_schemas.tracing import traces_wanted
from stoop_worker.config import WorkerConfig
from tests.project.modules import ROOT

COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
START = (ROOT / "deploy" / "redis" / "start.sh").read_text(encoding="utf-8")
SCHEMA = Draft202012Validator(json.loads(Path(__file__).with_name("compose.schema.json").read_text(encoding="utf-8")))
WORKERS = ["worker", "worker-gpu"]
MONITORING = ROOT / "deploy" / "monitoring"
CONFIGS: dict[str, type[BaseSettings]] = {
    **dict.fromkeys(["producer", "gateway", "triton"], ProducerConfig),
    **dict.fromkeys(WORKERS, WorkerConfig),
}

# The variables that AWS clients read.
OTEL_VARIABLES = {"OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_TRACES_SAMPLER", "OTEL_TRACES_SAMPLER_ARG"}
AWS_VARIABLES = {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_REGION", "AWS_PROFILE"}


def seconds(duration: str) -> float:
    units = {"s": 1, "m": 60, "h": 3600}
    return sum(float(amount) * units[unit] for amount, unit in re.findall(r"(\d+)([smh])", duration))


def settings(service: str) -> dict[str, str]:
    """The service's variables, with the defaults of those that come from outside."""
    given = SERVICES[service].get("environment", {})
    return {name: default(value) for name, value in given.items()}


def default(text: str) -> str:
    """The text with the defaults of those variables that come from outside."""
    return re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", text)


def megabytes(size: str) -> float:
    amount, unit = re.fullmatch(r"(\d+)([mg])b?", default(size)).groups()  # type: ignore[union-attr]
    return float(amount) * {"m": 1, "g": 1024}[unit]


def mounts(service: str) -> dict[str, str]:
    """The mounts: the source of each path."""
    pairs = [default(volume).split(":")[:2] for volume in SERVICES[service].get("volumes", [])]
    return {target: source for source, target in pairs}


def test_it_follows_the_compose_specification() -> None:
    assert [f"{'.'.join(map(str, error.path))}: {error.message}" for error in SCHEMA.iter_errors(COMPOSE)] == []


@pytest.mark.parametrize(
    "broken",
    [
        {"services": {"a": {"image": "a", "imagee": "b"}}},
        {"services": {"a": {"profiles": ["cpu"]}}},
        {"services": {"a": {"image": "a", "stop_grace_period": "soon"}}},
        {"services": {"a": {"image": "a", "depends_on": {"b": {"condition": "healthy"}}}}},
        {"services": {"a": {"image": "a", "healthcheck": {"test": ["true"]}}}},
        {"services": {"a": {"image": "a", "volumes": ["data"]}}},
        {"services": {"a": {"image": "a", "mem_limit": "much"}}},
        {"services": {"a": {"image": "a", "logging": {"size": "10m"}}}},
        {"service": {}},
    ],
    ids=str,
)
def test_the_schema_refuses_invalid_files_as_compose_does(broken: dict[str, Any]) -> None:
    assert not SCHEMA.is_valid({"name": "a", "services": {}} | broken)


def test_it_has_the_services_a_user_needs() -> None:
    assert set(SERVICES) == {
        "redis",
        "redis-acl",
        "object-store",
        "worker",
        "worker-gpu",
        "producer",
        "gateway",
        "triton",
        "exporter",
        "prometheus",
        "grafana",
        "collector",
    }
    for service in ("exporter", "prometheus", "grafana"):
        assert SERVICES[service]["profiles"] == ["monitoring"]
    assert SERVICES["collector"]["profiles"] == ["traces"]
    assert SERVICES["redis-acl"]["profiles"] == ["acl"]
    assert SERVICES["worker"]["profiles"] == ["cpu"]
    assert SERVICES["worker-gpu"]["profiles"] == ["gpu"]
    assert SERVICES["gateway"]["profiles"] == ["cpu", "gpu"]


@pytest.mark.parametrize("service", SERVICES)
def test_the_dependencies_of_a_service_exist(service: str) -> None:
    described = SERVICES[service]
    if build := described.get("build"):
        assert (ROOT / build["context"] / build["dockerfile"]).is_file()
    for needed, how in described.get("depends_on", {}).items():
        assert needed in SERVICES
        assert how["condition"] != "service_healthy" or "healthcheck" in SERVICES[needed]
        assert "profiles" not in SERVICES[needed], "it would not be started"
    for source in mounts(service).values():
        assert (ROOT / source).exists() if source.startswith(".") else source in COMPOSE["volumes"]


def test_every_volume_is_used() -> None:
    used = {source for service in SERVICES for source in mounts(service).values()}
    assert set(COMPOSE["volumes"]) <= used


def option_variables(options: type) -> set[str]:
    """The variables that are options of a command."""
    hints = get_type_hints(options, include_extras=True)
    return {hint.__metadata__[0].envvar for hint in hints.values() if hasattr(hint, "__metadata__")}


OPTIONS = {"gateway": option_variables(ServeOptions), "exporter": option_variables(ExporterOptions)}


@pytest.mark.parametrize("service", SERVICES)
def test_every_variable_is_one_that_is_read(service: str) -> None:
    for name in settings(service):
        if name.startswith("STOOP_"):
            configured = {f"STOOP_{field.upper()}" for field in CONFIGS.get(service, ProducerConfig).model_fields}
            assert name in configured | OPTIONS.get(service, set())
        elif service == "redis-acl":
            assert name.removesuffix("_PASSWORD") in START
        elif service == "grafana":
            assert name.startswith("GF_")
        else:
            assert name in AWS_VARIABLES | OTEL_VARIABLES


@pytest.mark.parametrize("service", CONFIGS)
def test_the_values_are_accepted(service: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in settings(service).items():
        monkeypatch.setenv(name, value)
    config = CONFIGS[service]()
    assert config.model_dump()["s3_endpoint"] == "http://object-store:8333"


@pytest.mark.parametrize("service", CONFIGS)
def test_the_addresses_are_those_of_services(service: str) -> None:
    for address in (settings(service)["STOOP_REDIS_URL"], settings(service)["STOOP_S3_ENDPOINT"]):
        host = re.search(r"//([^:/]+):", address)
        assert host is not None and host[1] in SERVICES[service]["depends_on"]


@pytest.mark.parametrize("service", [*CONFIGS, "exporter", "prometheus", "collector"])
def test_our_containers_run_with_few_rights(service: str) -> None:
    described = SERVICES[service]
    assert described["read_only"] is True
    assert described["cap_drop"] == ["ALL"]
    assert "no-new-privileges:true" in described["security_opt"]


@pytest.mark.parametrize("service", WORKERS)
def test_a_worker_is_healthy_when_its_ready_file_is_there(service: str) -> None:
    described = SERVICES[service]
    ready = settings(service)["STOOP_READY_FILE"]
    assert described["healthcheck"]["test"] == ["CMD", "test", "-f", ready]
    assert any(mount.startswith(f"{Path(ready).parent}:") for mount in described["tmpfs"])


@pytest.mark.parametrize("service", WORKERS)
def test_a_worker_has_time_to_drain(service: str) -> None:
    drain = float(settings(service)["STOOP_DRAIN_SECONDS"])
    assert seconds(SERVICES[service]["stop_grace_period"]) >= drain + 5


def test_the_gpu_worker_reserves_a_gpu() -> None:
    [device] = SERVICES["worker-gpu"]["deploy"]["resources"]["reservations"]["devices"]
    assert device == {"driver": "nvidia", "count": 1, "capabilities": ["gpu"]}
    assert "deploy" not in SERVICES["worker"]


@pytest.mark.parametrize("service", SERVICES)
def test_ports_are_open_to_this_machine_alone(service: str) -> None:
    assert all(port.startswith("127.0.0.1:") for port in SERVICES[service].get("ports", []))


@pytest.mark.parametrize("service", [name for name, one in SERVICES.items() if "build" not in one])
def test_images_of_others_are_of_one_version(service: str) -> None:
    assert re.fullmatch(r"[\w/-]+:v?\d+\.\d+[\w.-]*", SERVICES[service]["image"])


@pytest.mark.parametrize("name", ["prometheus", "grafana"])
def test_files_for_monitoring_are_mounted_at_their_configured_paths(name: str) -> None:
    mounted = mounts(name)
    if name == "prometheus":
        assert "--config.file=/etc/prometheus/prometheus.yml" in SERVICES[name]["command"]
        assert (ROOT / mounted["/etc/prometheus"] / "alerts.yml").is_file()
        return
    [provider] = yaml.safe_load((MONITORING / "grafana/provisioning/dashboards/stoop.yml").read_text())["providers"]
    board = Path(settings(name)["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"])
    assert board.parent.as_posix() == provider["options"]["path"]
    assert (ROOT / mounted[provider["options"]["path"]] / board.name).is_file()
    assert (ROOT / mounted["/etc/grafana/provisioning"] / "datasources").is_dir()


def test_prometheus_scrapes_ports_that_services_have() -> None:
    jobs = yaml.safe_load((MONITORING / "prometheus.yml").read_text())["scrape_configs"]
    targets = {target for job in jobs for one in job.get("static_configs", []) for target in one["targets"]}
    targets |= {
        f"{name}:{one['port']}" for job in jobs for one in job.get("dns_sd_configs", []) for name in one["names"]
    }
    [source] = yaml.safe_load((MONITORING / "grafana/provisioning/datasources/prometheus.yml").read_text())[
        "datasources"
    ]
    assert source["url"] == "http://prometheus:9090"
    assert targets == {f"worker:{settings('worker')['STOOP_METRICS_PORT']}", "exporter:9091", "gateway:8000"}
    assert settings("worker-gpu")["STOOP_METRICS_PORT"] == settings("worker")["STOOP_METRICS_PORT"]
    assert SERVICES["worker-gpu"]["networks"]["default"]["aliases"] == ["worker"]
    assert ExporterOptions().port == 9091 and ServeOptions().port == 8000


def test_traces_are_off_unless_a_collector_is_configured() -> None:
    for service in ("gateway", *WORKERS):
        assert not traces_wanted(settings(service))
        assert COMPOSE["x-traces"]["OTEL_EXPORTER_OTLP_ENDPOINT"] == "${OTEL_EXPORTER_OTLP_ENDPOINT:-}"
    text = (ROOT / "docker-compose.yml").read_text(encoding="utf-8")
    named = re.search(r"OTEL_EXPORTER_OTLP_ENDPOINT=http://([\w-]+):(\d+)", text)
    assert named is not None and named[2] in SERVICES[named[1]]["expose"]


def test_the_bucket_is_made_and_named_alike() -> None:
    assert "-bucket=stoop" in SERVICES["object-store"]["command"]
    assert settings("producer")["STOOP_BUCKET"] == "stoop"
    assert settings("worker")["STOOP_ALLOWED_BUCKETS"] == "stoop"


def test_the_worker_on_the_cpu_begins_with_a_small_model() -> None:
    assert settings("worker")["STOOP_MODEL"] in mounts("worker")
    folder = ROOT / mounts("worker")[settings("worker")["STOOP_MODEL"]]
    assert (folder / "config.json").is_file() and (folder / "tokenizer.json").is_file()
    assert (folder / "model.safetensors").stat().st_size < 64 << 20
    assert settings("worker-gpu")["STOOP_MODEL"] == "vikhyatk/moondream2"


@pytest.mark.parametrize("service", SERVICES)
def test_no_service_takes_all_memory_or_fills_the_disk_with_its_log(service: str) -> None:
    assert megabytes(SERVICES[service]["mem_limit"]) >= 512
    logging = SERVICES[service]["logging"]
    assert logging["driver"] == "json-file"
    assert megabytes(logging["options"]["max-size"]) * int(logging["options"]["max-file"]) <= 100


@pytest.mark.parametrize("service", ["redis", "redis-acl"])
def test_redis_refuses_jobs_before_its_container_is_killed(service: str) -> None:
    command = SERVICES[service]["command"]
    limit = command[command.index("--maxmemory") + 1]
    assert 2 * megabytes(limit) <= megabytes(SERVICES[service]["mem_limit"]), "a rewrite of its file copies"


def test_a_folder_of_pictures_can_be_named_and_is_only_read() -> None:
    [pictures] = SERVICES["producer"]["volumes"]
    assert pictures.startswith("${PICTURES:-") and pictures.endswith(":/pictures:ro")


def test_both_sides_can_be_sent_to_the_redis_with_users() -> None:
    assert COMPOSE["x-client"]["STOOP_REDIS_URL"].startswith("${CLIENT_REDIS_URL:-")
    for worker in WORKERS:
        assert SERVICES[worker]["environment"]["STOOP_REDIS_URL"].startswith("${WORKER_REDIS_URL:-")
