from typing import Any

import pytest

from stoop.config import ProducerConfig
from stoop.errors import ConfigError


@pytest.fixture(autouse=True)
def no_stoop_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ProducerConfig.model_fields:
        monkeypatch.delenv(f"STOOP_{name.upper()}", raising=False)


def test_variables_are_read_and_arguments_win(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STOOP_LANE", "bulk")
    monkeypatch.setenv("STOOP_BUCKET", "photos")
    monkeypatch.setenv("STOOP_S3_PATH_STYLE", "true")
    config = ProducerConfig(bucket="scans")
    assert (config.lane, config.bucket, config.s3_path_style) == ("bulk", "scans", True)


def test_an_empty_variable_counts_as_unset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STOOP_BUCKET", "")
    assert ProducerConfig().bucket is None


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"redis_url": "http://user:hunter2@h"}, "STOOP_REDIS_URL: .*redis://"),
        ({"s3_endpoint": "localhost:9000"}, "STOOP_S3_ENDPOINT: .*http://"),
        ({"timeout_seconds": 0}, "STOOP_TIMEOUT_SECONDS"),
        ({"upload_prefix": "/uploads/"}, "STOOP_UPLOAD_PREFIX: .*ends with /"),
        ({"upload_prefix": "uploads"}, "STOOP_UPLOAD_PREFIX: .*ends with /"),
        ({"upload_prefix": "a/../b/"}, "STOOP_UPLOAD_PREFIX: .*ends with /"),
        ({"lane_bounds": "bulk"}, "STOOP_LANE_BOUNDS: .*lane=jobs"),
        ({"lane_bounds": "bulk=0"}, "STOOP_LANE_BOUNDS: .*lane=jobs"),
        ({"lane_bounds": "two words=5"}, "STOOP_LANE_BOUNDS: .*lane=jobs"),
        ({"tenant_bound": 0}, "STOOP_TENANT_BOUND"),
        ({"bukket": "photos"}, "bukket"),
    ],
)
def test_an_invalid_setting_is_named_without_its_value(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as raised:
        ProducerConfig(**values)
    assert "hunter2" not in str(raised.value)
    assert "Value error" not in str(raised.value)


def test_no_text_contains_the_password() -> None:
    config = ProducerConfig(redis_url="rediss://user:hunter2@redis.example:6380/1?password=hunter2")
    assert "hunter2" not in repr(config) + str(config) + config.redis_address
    assert config.redis_address == "rediss://redis.example:6380/1"


def test_a_copy_has_the_replaced_fields_and_is_checked() -> None:
    config = ProducerConfig(redis_url="redis://:secret@h/0", lane="bulk")
    copy = config.replace(lane=None, timeout_seconds=5.0)
    assert (copy.lane, copy.timeout_seconds, copy.redis_url) == ("bulk", 5.0, config.redis_url)
    with pytest.raises(ConfigError):
        config.replace(timeout_seconds=-1)


def test_the_allowed_places_of_images_are_parsed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STOOP_ALLOWED_BUCKETS", "photos, acme=scans/2026")
    allowed = ProducerConfig().allowed
    assert allowed.permits("photos/a", None)
    assert allowed.permits("scans/2026/a", "acme")
    assert not allowed.permits("photos/a", "acme")


def test_signing_keys_are_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STOOP_SIGNING_KEYS", "web:sixteen-bytes-of-hunter2")
    config = ProducerConfig()
    assert config.keys is not None
    assert list(config.keys.secrets) == ["web"]
    assert "hunter2" not in repr(config) + repr(config.keys)
    for wrong in ("hunter2-without-a-key-id", "web:hunter2"):
        monkeypatch.setenv("STOOP_SIGNING_KEYS", wrong)
        with pytest.raises(ConfigError, match="STOOP_SIGNING_KEYS") as raised:
            ProducerConfig()
        assert "hunter2" not in str(raised.value)


@pytest.mark.parametrize("url", ["redis+sentinel://:hunter2@one,two/jobs", "rediss+cluster://:hunter2@one:7000,two"])
def test_sentinels_and_clusters_are_urls_too(url: str) -> None:
    config = ProducerConfig(redis_url=url)
    assert config.redis_address == url.replace(":hunter2@", "")


def test_bounds_are_read_by_lane(monkeypatch: pytest.MonkeyPatch) -> None:
    assert (ProducerConfig().bounds, ProducerConfig().tenant_bound) == ({}, None)
    monkeypatch.setenv("STOOP_LANE_BOUNDS", "bulk=50000, interactive=200")
    monkeypatch.setenv("STOOP_TENANT_BOUND", "20")
    config = ProducerConfig()
    assert (config.bounds, config.tenant_bound) == ({"bulk": 50_000, "interactive": 200}, 20)


def test_a_setting_that_is_none_is_reported_with_those_there_are() -> None:
    with pytest.raises(ConfigError, match=r"no setting 'api_key'; known are redis_url, bucket"):
        ProducerConfig(api_key="secret")
    with pytest.raises(ConfigError) as refused:
        ProducerConfig().replace(api_key="secret")
    assert "secret" not in str(refused.value)
