from pathlib import Path

import pytest

from stoop.config import ProducerConfig
from stoop.demo.embedded import EmbeddedS3
from tests.export.truth import BUCKET, Truth


@pytest.fixture
def truth(tmp_path: Path) -> Truth:
    return Truth(tmp_path)


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ProducerConfig.model_fields:
        monkeypatch.delenv(f"STOOP_{name.upper()}", raising=False)


@pytest.fixture
def stored(truth: Truth, s3: EmbeddedS3, monkeypatch: pytest.MonkeyPatch) -> str:
    """The pictures in a real object store, and the results about them there; returns where."""
    where = f"s3://{s3.bucket}/set"
    store = s3.client()
    for picture in truth.pictures:
        store.put_object(Bucket=s3.bucket, Key=f"set/{picture.name}.png", Body=picture.encoded)
    truth.results.write_text(truth.results.read_text().replace(BUCKET, where))
    monkeypatch.setenv("STOOP_S3_ENDPOINT", s3.endpoint)
    monkeypatch.setenv("STOOP_S3_REGION", s3.region)
    monkeypatch.setenv("STOOP_S3_PATH_STYLE", "1")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", s3.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", s3.secret_key)
    return where
