from pathlib import Path

import pytest

from stoop.demo.child_server import EmbeddedServerError
from stoop.demo.embedded import EmbeddedS3, embedded_redis
from stoop.demo.worker_process import running_worker


def test_the_ready_file_of_a_killed_worker_is_ignored(
    s3: EmbeddedS3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("STOOP_REDIS_URL", raising=False)
    (tmp_path / "worker-is-ready").touch()
    with (
        embedded_redis(tmp_path / "redis") as redis,
        pytest.raises(EmbeddedServerError, match="STOOP_PAGES"),
        running_worker(tmp_path, "m", redis, s3, {"pages": "none"}),
    ):
        pytest.fail("it is not ready")
