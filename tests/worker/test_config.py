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
