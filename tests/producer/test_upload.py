import hashlib
import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from PIL import Image

from producer.config import ProducerConfig
from producer.errors import ConfigError, ImageUnreadable, UploadFailed
from producer.upload import ImageStore

if TYPE_CHECKING:
    from producer.embedded import EmbeddedS3


def png(colour: str) -> bytes:
    written = io.BytesIO()
    Image.new("RGB", (4, 3), colour).save(written, "PNG")
    return written.getvalue()


def store(**values: Any) -> ImageStore:
    return ImageStore(ProducerConfig(**values))


@pytest.fixture
def own(s3: "EmbeddedS3", monkeypatch: pytest.MonkeyPatch) -> ImageStore:
    """A store on the embedded server, with its credentials where AWS clients look."""
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)
    return store(bucket=s3.bucket, s3_endpoint=s3.endpoint, s3_region=s3.region, s3_path_style=True)


@pytest.mark.parametrize("address", ["s3://b/k", "data:image/png;base64,aaaa", "https://h/x.png"])
async def test_an_address_is_sent_as_it_is(address: str) -> None:
    assert await store().address(address) == address


async def test_an_image_is_kept_under_its_digest(own: ImageStore, s3: "EmbeddedS3", tmp_path: Path) -> None:
    encoded = png("red")
    (tmp_path / "no-suffix").write_bytes(encoded)
    key = f"uploads/{hashlib.sha256(encoded).hexdigest()}.png"
    by_path = await own.address(tmp_path / "no-suffix")
    assert by_path == await own.address(str(tmp_path / "no-suffix")) == await own.address(encoded)
    assert by_path == f"s3://{s3.bucket}/{key}"
    assert s3.client().get_object(Bucket=s3.bucket, Key=key)["Body"].read() == encoded
    assert await own.read(by_path) == encoded
    own.close()
    own.close()


async def test_what_is_there_is_not_uploaded_again(own: ImageStore, s3: "EmbeddedS3") -> None:
    address = await own.address(png("green"))
    key = address.removeprefix(f"s3://{s3.bucket}/")
    s3.client().put_object(Bucket=s3.bucket, Key=key, Body=b"what was there")
    assert await own.address(png("green")) == address
    assert await own.read(address) == b"what was there"
    own.close()


async def test_a_pillow_image_is_uploaded_as_png(own: ImageStore) -> None:
    address = await own.address(Image.new("RGBA", (5, 6), "blue"))
    with Image.open(io.BytesIO(await own.read(address))) as opened:
        assert (opened.format, opened.size) == ("PNG", (5, 6))
    own.close()


async def test_what_is_no_image_is_refused_before_any_upload(tmp_path: Path) -> None:
    (tmp_path / "note.txt").write_text("not an image")
    images = store(bucket="photos")
    for given, told in [
        (tmp_path / "absent.png", "there is no file"),
        (tmp_path, "is a folder"),
        (tmp_path / "note.txt", "note.txt is not an image"),
        (b"", "not an image"),
        (7, "int is no image"),
    ]:
        with pytest.raises(ImageUnreadable, match=told):
            await images.address(given)  # type: ignore[arg-type]


async def test_without_a_bucket_it_says_what_to_set() -> None:
    with pytest.raises(ConfigError, match="STOOP_BUCKET"):
        await store().address(png("red"))


async def test_a_store_that_is_not_there_is_named(own: ImageStore) -> None:
    gone = store(bucket="photos", s3_endpoint="http://127.0.0.1:9", s3_path_style=True, s3_region="us-east-1")
    with pytest.raises(UploadFailed, match="STOOP_S3_ENDPOINT"):
        await gone.address(png("red"))
    gone.close()


async def test_a_bucket_that_is_not_there_is_named(own: ImageStore, s3: "EmbeddedS3") -> None:
    other = store(bucket="no-such-bucket", s3_endpoint=s3.endpoint, s3_region=s3.region, s3_path_style=True)
    with pytest.raises(UploadFailed, match="no-such-bucket"):
        await other.address(png("red"))
    other.close()


async def test_an_object_that_is_not_there_is_named(own: ImageStore, s3: "EmbeddedS3") -> None:
    with pytest.raises(UploadFailed, match=r"nothing at s3://.*/absent\.png"):
        await own.read(f"s3://{s3.bucket}/absent.png")
    own.close()


async def test_wrong_credentials_are_told(own: ImageStore, s3: "EmbeddedS3", monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    with pytest.raises(UploadFailed, match="credentials"):
        await own.address(png("red"))
    own.close()


async def test_inline_images_are_read() -> None:
    assert await store().read("data:image/png;base64,aGk=") == b"hi"
    with pytest.raises(ImageUnreadable, match="base64"):
        await store().read("data:image/png;base64,???")
    with pytest.raises(ImageUnreadable, match="download"):
        await store().read("https://h/x.png")
