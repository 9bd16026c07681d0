import pytest

from worker.config import WorkerConfig, read_config
from worker.errors import ConfigError


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


def test_permits_default_to_two_batches() -> None:
    assert read_config({"model": "m", "max_batch": 8}).free_permits == 16
    assert read_config({"model": "m", "max_batch": 8, "permits": 3}).free_permits == 3


def test_every_field_says_what_it_is() -> None:
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
