import asyncio
import base64
import hashlib
import io
import threading
import time
from collections.abc import Iterator
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from PIL import Image

from stoop.config import ProducerConfig
from stoop.errors import ConfigError, ImageUnreadable, UploadFailed
from stoop.images import upload
from stoop.images.upload import ImageStore

if TYPE_CHECKING:
    from stoop.demo.embedded import EmbeddedS3


def png(colour: str) -> bytes:
    written = io.BytesIO()
    Image.new("RGB", (4, 3), colour).save(written, "PNG")
    return written.getvalue()


def store(**values: Any) -> ImageStore:
    return ImageStore(ProducerConfig(**values))


class UnlistableStore(BaseHTTPRequestHandler):
    """A store whose user may not list: it refuses absent objects. A GET is cut in the middle, or refused."""

    protocol_version = "HTTP/1.1"  # which answers `Expect: 100-continue`; else boto3 waits a second before each PUT

    put_status = 200
    put: bytes
    refusal = ""

    def do_HEAD(self) -> None:
        self.answer(403)

    def do_PUT(self) -> None:
        UnlistableStore.put = self.rfile.read(int(self.headers["Content-Length"]))
        self.answer(self.put_status)

    def do_GET(self) -> None:
        if self.refusal:
            body = f"<Error><Code>{self.refusal}</Code></Error>".encode()
            self.answer(403, length=len(body))
            self.wfile.write(body)
            return
        self.answer(200, length=1000)
        self.wfile.write(b"too few")
        self.close_connection = True

    def answer(self, status: int, *, length: int = 0) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(length))
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Keep the test's output clean."""


@pytest.fixture
def guarded(monkeypatch: pytest.MonkeyPatch) -> Iterator[ImageStore]:
    """A store whose bucket `UnlistableStore` keeps."""
    for name, value in {"AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s", "NO_PROXY": "127.0.0.1"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with ThreadingHTTPServer(("127.0.0.1", 0), UnlistableStore) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        endpoint = f"http://127.0.0.1:{server.server_port}"
        images = store(bucket="photos", s3_endpoint=endpoint, s3_region="us-east-1", s3_path_style=True)
        yield images
        images.close()
        server.shutdown()
        thread.join()


async def test_an_upload_works_without_permission_to_list(guarded: ImageStore) -> None:
    assert (await guarded.address(png("red"))).startswith("s3://photos/uploads/")
    assert UnlistableStore.put == png("red")


@pytest.mark.parametrize(
    ("status", "message"),
    [(403, "refuses access to s3://photos/uploads/"), (404, "answered 404 for s3://photos/uploads/")],
)
async def test_an_upload_that_is_refused_is_reported(
    guarded: ImageStore, monkeypatch: pytest.MonkeyPatch, status: int, message: str
) -> None:
    monkeypatch.setattr(UnlistableStore, "put_status", status)
    with pytest.raises(UploadFailed, match=message):
        await guarded.address(png("red"))


async def test_a_store_that_closes_the_connection_early_is_reported(guarded: ImageStore) -> None:
    with pytest.raises(UploadFailed, match="object store") as raised:
        await guarded.read("s3://photos/cat.png")
    assert not raised.value.refused


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("AccessDenied", r"rights s3:GetObject and s3:ListBucket"),
        ("AuthorizationHeaderMalformed", "AWS_ACCESS_KEY_ID"),
        ("InvalidAccessKeyId", "AWS_ACCESS_KEY_ID"),
        ("ExpiredToken", "AWS_SESSION_TOKEN"),
        ("InvalidToken", "AWS_SESSION_TOKEN"),
        ("RequestTimeTooSkewed", "clock"),
        ("NoSuchBucket", "no bucket 'photos'"),
    ],
)
async def test_a_refusal_is_reported_with_advice(
    guarded: ImageStore, monkeypatch: pytest.MonkeyPatch, code: str, message: str
) -> None:
    monkeypatch.setattr(UnlistableStore, "refusal", code)
    with pytest.raises(UploadFailed, match=message) as raised:
        await guarded.read("s3://photos/cat.png")
    assert (raised.value.refused, raised.value.absent) == (True, False)


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


async def test_an_object_that_exists_is_not_uploaded_again(own: ImageStore, s3: "EmbeddedS3") -> None:
    address = await own.address(png("green"))
    key = address.removeprefix(f"s3://{s3.bucket}/")
    s3.client().put_object(Bucket=s3.bucket, Key=key, Body=b"what was there")
    assert await own.address(png("green")) == address
    assert await own.read(address) == b"what was there"
    own.close()


async def test_images_go_under_the_prefix_of_the_configuration(s3: "EmbeddedS3", own: ImageStore) -> None:
    where = {"s3_endpoint": s3.endpoint, "s3_region": s3.region, "s3_path_style": True}
    images = store(bucket=s3.bucket, upload_prefix="team-a/in/", **where)
    address = await images.address(png("red"))
    assert address == f"s3://{s3.bucket}/team-a/in/{hashlib.sha256(png('red')).hexdigest()}.png"
    assert await own.read(address) == png("red")
    images.close()


class RecordingStore(BaseHTTPRequestHandler):
    """A store that records its requests; its objects are `age` seconds old."""

    protocol_version = "HTTP/1.1"  # as above

    asked: list[str]
    age: float | None = None

    def do_HEAD(self) -> None:
        self.answer(404 if self.age is None else 200)

    def do_PUT(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.answer(200)

    def answer(self, status: int) -> None:
        self.asked.append(self.command)
        self.send_response(status)
        self.send_header("Content-Length", "0")
        if self.age is not None:
            self.send_header("Last-Modified", formatdate(time.time() - self.age, usegmt=True))
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Keep the test's output clean."""


class Clock:
    seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> Iterator[ImageStore]:
    """A store whose bucket `RecordingStore` keeps."""
    for name, value in {"AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s", "NO_PROXY": "127.0.0.1"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr(RecordingStore, "asked", [], raising=False)
    with ThreadingHTTPServer(("127.0.0.1", 0), RecordingStore) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        values = {"bucket": "photos", "s3_region": "us-east-1", "s3_path_style": True}
        images = ImageStore(
            ProducerConfig(s3_endpoint=f"http://127.0.0.1:{server.server_port}", **values),  # type: ignore[arg-type]
            clock=clock,
        )
        yield images
        images.close()
        server.shutdown()
        thread.join()


async def test_the_store_is_asked_once_for_an_image(counted: ImageStore, clock: Clock) -> None:
    image = Image.new("RGB", (8, 8), "red")
    address = await counted.address(image)
    assert RecordingStore.asked == ["HEAD", "PUT"]
    assert {await counted.address(each) for each in (image, image.copy(), np.asarray(image))} == {address}
    assert RecordingStore.asked == ["HEAD", "PUT"]
    clock.seconds += 601  # the bucket may have been emptied
    assert await counted.address(image) == address
    assert RecordingStore.asked == ["HEAD", "PUT"] * 2


@pytest.mark.parametrize(("age", "asked"), [(3600, ["HEAD"]), (90_000, ["HEAD", "PUT"])])
async def test_an_upload_of_another_day_is_put_again(
    counted: ImageStore, monkeypatch: pytest.MonkeyPatch, age: float, asked: list[str]
) -> None:
    """A rule of the bucket may remove it soon."""
    monkeypatch.setattr(RecordingStore, "age", age)
    await counted.address(png("red"))
    assert RecordingStore.asked == asked


async def test_an_image_asked_for_many_times_at_once_is_uploaded_once(counted: ImageStore) -> None:
    addresses = await asyncio.gather(*(counted.address(png("red")) for _ in range(20)))
    assert len(set(addresses)) == 1
    assert RecordingStore.asked == ["HEAD", "PUT"]


async def test_a_cancelled_caller_does_not_cancel_a_shared_upload(counted: ImageStore) -> None:
    impatient, patient = (asyncio.create_task(counted.address(png("red"))) for _ in range(2))
    while not counted._uploads:
        await asyncio.sleep(0)
    impatient.cancel()
    assert (await patient).startswith("s3://photos/uploads/")
    with pytest.raises(asyncio.CancelledError):
        await impatient


async def test_a_failed_upload_is_tried_again(guarded: ImageStore, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as refusing:
        refusing.setattr(UnlistableStore, "put_status", 403)
        with pytest.raises(UploadFailed):
            await guarded.address(png("red"))
    assert (await guarded.address(png("red"))).startswith("s3://photos/uploads/")


async def test_only_so_many_images_are_remembered(counted: ImageStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upload, "_KNOWN_IMAGES", 2)
    for colour in ("red", "green", "red", "blue", "red", "green"):
        await counted.address(png(colour))
    assert RecordingStore.asked == ["HEAD", "PUT"] * 4, "green went when blue came, as red had been used since"


async def test_an_inline_image_too_long_for_a_job_is_uploaded(own: ImageStore) -> None:
    written = io.BytesIO()
    Image.merge("RGB", [Image.effect_noise((700, 700), 90) for _ in range(3)]).save(written, "PNG")
    address = f"data:image/png;base64,{base64.b64encode(written.getvalue()).decode()}"
    assert len(address) > 1 << 20
    stored = await own.address(address)
    assert await own.read(stored) == written.getvalue()
    own.close()


async def test_a_pillow_image_is_uploaded_as_png(own: ImageStore) -> None:
    address = await own.address(Image.new("RGBA", (5, 6), "blue"))
    with Image.open(io.BytesIO(await own.read(address))) as opened:
        assert (opened.format, opened.size) == ("PNG", (5, 6))
    own.close()


async def test_an_input_that_is_not_an_image_is_refused_before_any_upload(tmp_path: Path) -> None:
    (tmp_path / "note.txt").write_text("not an image")
    images = store(bucket="photos")
    for given, message in [
        (tmp_path / "absent.png", "there is no file"),
        ("ftp://user:secret@host/photo.png", "no worker reads ftp:// addresses: give s3://bucket/key"),
        (tmp_path, "is a folder"),
        (tmp_path / "note.txt", "note.txt is not an image"),
        (b"", "not an image"),
        (7, "int is not an image"),
    ]:
        with pytest.raises(ImageUnreadable, match=message):
            await images.address(given)  # type: ignore[arg-type]


async def test_a_pillow_image_that_turns_out_damaged_is_refused() -> None:
    whole = io.BytesIO()
    Image.effect_noise((64, 64), 50).save(whole, "PNG")
    with Image.open(io.BytesIO(whole.getvalue()[:-2000])) as damaged, pytest.raises(ImageUnreadable, match="decoded"):
        await store(bucket="photos").address(damaged)


async def test_without_a_bucket_the_error_names_the_variable() -> None:
    with pytest.raises(ConfigError, match="STOOP_BUCKET"):
        await store().address(png("red"))


async def test_a_store_that_is_not_there_is_named(own: ImageStore) -> None:
    gone = store(bucket="photos", s3_endpoint="http://127.0.0.1:9", s3_path_style=True, s3_region="us-east-1")
    with pytest.raises(UploadFailed, match="STOOP_S3_ENDPOINT"):
        await gone.address(png("red"))
    gone.close()


@pytest.mark.parametrize("wrong", [{"s3_endpoint": "http://a b"}, {"s3_endpoint": "http://h", "s3_region": "a b"}])
async def test_a_store_that_cannot_be_addressed_is_a_wrong_setting(wrong: dict[str, str]) -> None:
    for call in (store(bucket="photos", **wrong).address(png("red")), store(**wrong).read("s3://photos/cat.png")):
        with pytest.raises(ConfigError, match="STOOP_S3_ENDPOINT and STOOP_S3_REGION"):
            await call


@pytest.mark.parametrize(
    ("endpoint", "error"),
    [("http://user:secret@minio.internal :9000", ConfigError), ("http://user:secret@127.0.0.1:9", UploadFailed)],
)
async def test_a_message_shows_neither_the_address_of_the_store_nor_its_credentials(
    own: ImageStore, endpoint: str, error: type[Exception]
) -> None:
    wrong = store(bucket="photos", s3_endpoint=endpoint, s3_path_style=True, s3_region="us-east-1")
    with pytest.raises(error, match="STOOP_S3_ENDPOINT") as raised:
        await wrong.read("s3://photos/cat.png")
    assert not {part for part in ("secret", "minio", "127.0.0.1") if part in str(raised.value)}
    wrong.close()


async def test_a_bucket_that_is_not_there_is_named(own: ImageStore, s3: "EmbeddedS3") -> None:
    other = store(bucket="no-such-bucket", s3_endpoint=s3.endpoint, s3_region=s3.region, s3_path_style=True)
    with pytest.raises(UploadFailed, match="no-such-bucket"):
        await other.address(png("red"))
    other.close()


@pytest.mark.parametrize("key", ["#1 a.png", "what?.png", "a/100%25.png", "a+b&c=d.png"])
async def test_a_key_is_read_literally(own: ImageStore, s3: "EmbeddedS3", key: str) -> None:
    s3.client().put_object(Bucket=s3.bucket, Key=key, Body=key.encode())
    assert await own.read(f"s3://{s3.bucket}/{key}") == key.encode()
    own.close()


async def test_an_address_the_worker_would_refuse_is_refused() -> None:
    with pytest.raises(ImageUnreadable, match="s3://bucket/key"):
        await store().read("s3://bucket")


async def test_an_object_that_is_not_there_is_named(own: ImageStore, s3: "EmbeddedS3") -> None:
    with pytest.raises(UploadFailed, match=r"nothing at s3://.*/absent\.png"):
        await own.read(f"s3://{s3.bucket}/absent.png")
    own.close()


async def test_wrong_credentials_are_reported(
    own: ImageStore, s3: "EmbeddedS3", monkeypatch: pytest.MonkeyPatch
) -> None:
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


async def test_a_recording_is_kept_under_its_digest_and_its_files_ending(
    own: ImageStore, s3: "EmbeddedS3", tmp_path: Path
) -> None:
    (tmp_path / "talk.MP3").write_bytes(b"a recording")
    digest = hashlib.sha256(b"a recording").hexdigest()
    by_path, by_bytes = await own.audio_address(tmp_path / "talk.MP3"), await own.audio_address(b"another")
    assert by_path == f"s3://{s3.bucket}/uploads/{digest}.mp3"
    kept = s3.client().get_object(Bucket=s3.bucket, Key=f"uploads/{digest}.mp3")
    assert (kept["Body"].read(), kept["ContentType"]) == (b"a recording", "audio/mpeg")
    assert by_bytes.endswith(".bin")
    assert await own.audio_address("s3://talks/a.mp3") == "s3://talks/a.mp3"


async def test_a_recording_too_long_for_a_job_is_uploaded(own: ImageStore, s3: "EmbeddedS3") -> None:
    long = b"0" * (1 << 20)
    address = await own.audio_address("data:audio/wav;base64," + base64.b64encode(long).decode())
    key = address.removeprefix(f"s3://{s3.bucket}/")
    assert s3.client().get_object(Bucket=s3.bucket, Key=key)["Body"].read() == long
