"""Adapters from each kind of place, over real servers of S3 and HTTPS."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from stoop.demo.embedded import EmbeddedS3
from stoop_schemas.failure import FailureCode, Rejected
from stoop_worker.errors import ImageNotFound, StorageUnavailable
from stoop_worker.jobs.fetch.adapter_source import AdapterSource, check_place
from stoop_worker.jobs.fetch.fetcher import FetchConfig, Fetcher
from stoop_worker.jobs.fetch.https import HttpsConfig, HttpsFetcher
from tests.support.authority import Authority
from tests.support.web_server import Web, answer, running_web

HOST, STORE = "api.example", "files.example"
COMMIT = "0123456789abcdef0123456789abcdef01234567"
TUNED = f"https://{HOST}/v1/finetunes/{{name}}/checkpoints/{{step}}/download"


async def no_address(address: str) -> bytes:
    raise AssertionError(f"{address} was read")


def no_hub(repository: str, revision: str, file: str) -> bytes:
    raise AssertionError(f"{repository} was read")


def source(place: str, **readers: Any) -> AdapterSource:
    none = {"s3": no_address, "https": no_address, "linked": no_address, "hub": no_hub}
    return AdapterSource(check_place(place), **{**none, **readers})


@pytest.fixture
async def web(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Web]:
    authority = Authority(tmp_path_factory.mktemp("authority"))
    async with running_web(authority.trust, authority.server(HOST, STORE)) as web:
        yield web


def on_web(web: Web, place: str) -> AdapterSource:
    def reader(header: tuple[str, str] | None) -> Any:
        return HttpsFetcher(HttpsConfig(header=header), resolve=web.resolve, backend=web, trust=web.trust).fetch

    return source(place, https=reader(("X-Key", "sesame")), linked=reader(None))


async def test_an_object_of_a_bucket(s3: EmbeddedS3, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)
    s3.client().put_object(Bucket=s3.bucket, Key="tuned/cats@3.pt", Body=b"weights")
    async with Fetcher(FetchConfig(timeout=10)) as fetcher:
        found = source(f"s3://{s3.bucket}/tuned/{{id}}.pt", s3=fetcher.fetch)
        assert await found.fetch("cats@3") == b"weights"
        with pytest.raises(Rejected, match="there is no adapter 'dogs'") as raised:
            await found.fetch("dogs")
    assert raised.value.failure.code is FailureCode.INVALID_ARGUMENT


async def test_a_file_of_a_web_server(web: Web) -> None:
    web.paths = {"/a/cats%403.pt": answer(b"weights")}
    assert await on_web(web, f"https://{HOST}/a/{{id}}.pt").fetch("cats@3") == b"weights"


async def test_an_answer_with_an_address_is_followed_without_the_key(web: Web) -> None:
    web.paths = {
        "/v1/finetunes/cats/checkpoints/3/download": answer(f'{{"url": "https://{STORE}/x?signature=1"}}'.encode()),
        "/x?signature=1": answer(b"weights"),
    }
    assert await on_web(web, TUNED).fetch("cats@3") == b"weights"
    assert [b"sesame" in asked for asked in web.asked] == [True, False]


async def test_a_redirect_is_followed_without_the_key(web: Web) -> None:
    web.paths = {
        "/v1/finetunes/cats/checkpoints/3/download": answer(status="302 Found", location=f"https://{STORE}/x"),
        "/x": answer(b"weights"),
    }
    assert await on_web(web, TUNED).fetch("cats@3") == b"weights"
    assert [b"sesame" in asked for asked in web.asked] == [True, False]


@pytest.mark.parametrize(
    ("status", "code", "message"),
    [
        ("404 Not Found", FailureCode.INVALID_ARGUMENT, "there is no adapter 'cats@3'"),
        ("410 Gone", FailureCode.INVALID_ARGUMENT, "there is no adapter 'cats@3'"),
        ("403 Forbidden", FailureCode.INVALID_ARGUMENT, "cannot be read"),
        ("503 Service Unavailable", FailureCode.STORAGE_UNAVAILABLE, "could not be fetched"),
    ],
)
async def test_a_refusal_names_the_adapter(web: Web, status: str, code: FailureCode, message: str) -> None:
    web.paths = {"/v1/finetunes/cats/checkpoints/3/download": answer(status=status)}
    with pytest.raises(Rejected, match=message) as raised:
        await on_web(web, TUNED).fetch("cats@3")
    assert raised.value.failure.code is code
    assert "sesame" not in str(raised.value)


async def test_a_repository_at_a_commit() -> None:
    asked: list[tuple[str, str, str]] = []

    def hub(repository: str, revision: str, file: str) -> bytes:
        asked.append((repository, revision, file))
        if "dogs" in file:
            raise ImageNotFound(f"no file {file}")
        if "birds" in file:
            raise StorageUnavailable("the hub is away")
        return b"weights"

    found = source(f"hf://farm/adapters@{COMMIT}/all/{{id}}.safetensors", hub=hub)
    assert await found.fetch("cats") == b"weights"
    assert asked == [("farm/adapters", COMMIT, "all/cats.safetensors")]
    with pytest.raises(Rejected, match="there is no adapter 'dogs'"):
        await found.fetch("dogs")
    with pytest.raises(Rejected, match="could not be fetched") as raised:
        await found.fetch("birds")
    assert raised.value.failure.retryable


@pytest.mark.parametrize(
    "place",
    [
        "http://host.example/{id}.pt",
        "s3://bucket/adapters",
        "https://host.example/{step}",
        "s3://bucket/{id}/{tenant}",
        "hf://farm/adapters@main/{id}.pt",
        "ftp://host.example/{id}",
    ],
)
def test_a_place_that_cannot_work_is_refused(place: str) -> None:
    with pytest.raises(ValueError, match=r"\{id\}"):
        check_place(place)


def test_a_place_is_kept_as_it_is_written(tmp_path: Path) -> None:
    assert check_place(TUNED) == TUNED


@pytest.mark.parametrize("adapter", ["cats@..", "cats@."])
async def test_an_id_does_not_leave_the_place(adapter: str) -> None:
    with pytest.raises(Rejected, match="must not leave") as raised:
        await source(f"https://{HOST}/a/{{name}}/{{step}}/file").fetch(adapter)
    assert raised.value.failure.code is FailureCode.INVALID_ARGUMENT


async def test_a_key_is_not_in_the_description_of_a_reader() -> None:
    assert "sesame" not in repr(HttpsConfig(header=("X-Key", "sesame")))
