from pathlib import Path
from typing import get_args

import pytest

from stoop_worker.config import WorkerConfig, read_config
from stoop_worker.errors import ConfigError


def test_a_flag_wins_over_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STOOP_PAGE_SIZE", "8")
    monkeypatch.setenv("STOOP_MAX_BATCH", "4")
    config = read_config({"model": "m", "page_size": "32"})
    assert (config.page_size, config.max_batch) == (32, 4)


def test_lists_are_written_with_commas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STOOP_ALLOWED_BUCKETS", "photos, scans/2026 ,")
    config = read_config({"model": "m", "lanes": "fast,slow"})
    assert config.allowed_buckets == ("photos", "scans/2026")
    assert config.lanes == ("fast", "slow")


def test_every_fault_is_named_at_once_with_its_flag_and_variable() -> None:
    with pytest.raises(ConfigError) as caught:
        read_config({"pages": "0", "device": "tpu", "redis_url": "http://x"})
    message = str(caught.value)
    for expected in ("--model (STOOP_MODEL): give it", "--pages (STOOP_PAGES)", "'cpu' or 'cuda'", "redis://"):
        assert expected in message


def test_a_password_in_the_redis_url_is_never_shown() -> None:
    config = read_config({"model": "m", "redis_url": "redis://:sesame@host/0"})
    assert "sesame" not in repr(config) + str(config)
    with pytest.raises(ConfigError) as caught:
        read_config({"model": "m", "redis_url": "http://:sesame@host/0"})
    assert "sesame" not in str(caught.value)


def test_permits_fit_the_device() -> None:
    assert read_config({"model": "m"}).permits_on("cuda") == 128
    assert read_config({"model": "m"}).permits_on("cpu") == 16
    assert read_config({"model": "m", "max_batch": 2}).permits_on("cpu") == 4
    assert read_config({"model": "m", "permits": 32}).permits_on("cpu") == 32


def test_every_field_has_a_description() -> None:
    assert all(field.description for field in WorkerConfig.model_fields.values())


def test_buckets_are_read_by_tenant() -> None:
    allowed = read_config({"model": "m", "allowed_buckets": "photos,acme=scans/2026"}).allowed
    assert allowed.permits("scans/2026/a", "acme")
    assert not allowed.permits("photos/a", "acme")
    with pytest.raises(ConfigError, match=r"--allowed-buckets .*must be bucket"):
        read_config({"model": "m", "allowed_buckets": "s3://photos"})


def test_signing_keys_are_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    assert read_config({"model": "m"}).keys is None
    monkeypatch.setenv("STOOP_SIGNING_KEYS", "web:sixteen-bytes-of-sesame,batch:sixteen-bytes-of-sesame")
    config = read_config({"model": "m"})
    assert config.keys is not None
    assert list(config.keys.secrets) == ["web", "batch"]
    assert "sesame" not in repr(config) + str(config)
    monkeypatch.setenv("STOOP_SIGNING_KEYS", "web:sesame")
    with pytest.raises(ConfigError, match="too short") as caught:
        read_config({"model": "m"})
    assert "sesame" not in str(caught.value)


def test_web_servers_are_off_unless_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not read_config({"model": "m"}).allow_https
    monkeypatch.setenv("STOOP_ALLOW_HTTPS", "true")
    monkeypatch.setenv("STOOP_HTTPS_HOSTS", "images.example,*.cdn.example")
    config = read_config({"model": "m"})
    assert config.allow_https
    assert config.https_hosts == ("images.example", "*.cdn.example")


@pytest.mark.parametrize("url", ["redis+sentinel://:sesame@one,two/jobs", "rediss+cluster://:sesame@one:7000,two"])
def test_sentinels_and_clusters_are_urls_too(url: str) -> None:
    assert read_config({"model": "m", "redis_url": url}).redis_url.get_secret_value() == url


def test_a_worker_serves_jobs_without_a_model_and_those_that_name_its_own() -> None:
    config = read_config({"model": "moondream2"})
    assert (config.name, config.models) == ("moondream2", (None, "moondream2"))
    assert config.chosen.source == "vikhyatk/moondream2"


def test_a_model_without_a_name_serves_jobs_without_a_model_alone(tmp_path: Path) -> None:
    config = read_config({"model": str(tmp_path)})
    assert (config.name, config.models) == (None, (None,))
    assert read_config({"model": str(tmp_path), "model_name": "mine"}).models == (None, "mine")


def test_a_second_model_leaves_jobs_without_a_model_to_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STOOP_SERVE_DEFAULT", "false")
    assert read_config({"model": "moondream2"}).models == ("moondream2",)
    with pytest.raises(ConfigError, match="give --model-name"):
        read_config({"model": "somebody/else"})


@pytest.mark.parametrize("name", ["a/b", "a:b", "a b", "", "quarantine", "m" * 65])
def test_a_name_that_no_lane_can_have_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=r"--model-name \(STOOP_MODEL_NAME\): must be 1 to 64"):
        read_config({"model": "m", "model_name": name})


@pytest.mark.parametrize(
    ("field", "value", "wanted"),
    [
        ("lease_seconds", "inf", "from 1 to 3600"),
        ("lease_seconds", "nan", "from 1 to 3600"),
        ("drain_seconds", "inf", "from 0 to 86400"),
        ("hang_seconds", "0.001", "from 0.5 to 86400"),
        ("restart_seconds", "1e18", "from 1 to 86400"),
        ("result_ttl_seconds", "99999999999999999", "from 1 to 315360000"),
        ("lane_result_ttl_seconds", "bulk=0", "name=seconds, such as bulk=3600"),
        ("lane_result_ttl_seconds", "bulk", "name=seconds, such as bulk=3600"),
        ("lane_result_ttl_seconds", "bulk=1h", "name=seconds, such as bulk=3600"),
        ("fetch_timeout_seconds", "0", "from 0.1 to 3600"),
        ("permits", "1" + "0" * 18, "from 1 to 65536"),
        ("pages", "none", "from 1 to"),
        ("temperature", "nan", "from 0 to 10"),
        ("s3_endpoint", "ftp://store", "https://host[:port]"),
        ("s3_endpoint", "store:9000", "https://host[:port]"),
    ],
)
def test_an_invalid_value_is_refused_with_the_allowed_ones(field: str, value: str, wanted: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_config({"model": "m", field: value})
    assert str(caught.value).startswith(f"--{field.replace('_', '-')} (STOOP_{field.upper()}): ")
    assert wanted in str(caught.value)


def test_lanes_may_keep_results_for_times_of_their_own() -> None:
    config = read_config({"model": "m", "lane_result_ttl_seconds": "bulk=3600, team:night=60"})
    assert config.lane_result_ttls == {"bulk": 3600, "team:night": 60}
    assert read_config({"model": "m"}).lane_result_ttls == {}


def test_every_number_has_a_range() -> None:
    numbers = [name for name, field in WorkerConfig.model_fields.items() if _is_number(field.annotation)]
    assert numbers
    assert {name for name in numbers if "give a number" not in _refusal(name)} == set()


def _is_number(annotation: object) -> bool:
    return bool({int, float} & {annotation, *get_args(annotation)})


def _refusal(name: str) -> str:
    with pytest.raises(ConfigError) as caught:
        read_config({"model": "m", name: "inf"})
    return str(caught.value)
