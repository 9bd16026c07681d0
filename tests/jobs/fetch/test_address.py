"""Reading image addresses: objects, inline images, and refused ones."""

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoop_worker.errors import ImageAddressInvalid, ImageTooLarge
from stoop_worker.jobs.fetch.address import ObjectAddress, is_inline, parse_object, unpack_inline

PIXEL = b"\x89PNG, or so"


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("s3://bucket/key", ObjectAddress("bucket", "key")),
        ("s3://b.u-c_k/a folder/é+&=#.jpg", ObjectAddress("b.u-c_k", "a folder/é+&=#.jpg")),
        ("s3://bucket/100%25%2F.jpg", ObjectAddress("bucket", "100%25%2F.jpg")),
        ("s3://bucket//leading", ObjectAddress("bucket", "/leading")),
        ("s3://bucket/key?versionId=1/2", ObjectAddress("bucket", "key?versionId=1/2")),
        ("s3://bucket/key?versionId=3L4k_.-+", ObjectAddress("bucket", "key", "3L4k_.-+")),
        ("s3://bucket/what?.jpg", ObjectAddress("bucket", "what?.jpg")),
        ("s3://bucket/key?versionId=", ObjectAddress("bucket", "key?versionId=")),
        ("s3://bucket/key?versionId=1&x=2", ObjectAddress("bucket", "key?versionId=1&x=2")),
        ("s3://bucket/a\nb", ObjectAddress("bucket", "a\nb")),
    ],
)
def test_objects(address: str, expected: ObjectAddress) -> None:
    assert parse_object(address) == expected


@pytest.mark.parametrize(
    "address",
    [
        "",
        "bucket/key",
        "s3://bucket",
        "s3://bucket/",
        "s3:///key",
        "S3://bucket/key",
        "s3://user:secret@bucket/key",
        "s3://arn:aws:s3:us-east-1:123456789012:accesspoint/mine/key",
        "s3://bucket/allowed/../secret",
        "s3://bucket/./key",
        "s3://bucket/\ud800",
        "s3://bucket/" + "é" * 513,
        "gs://bucket/key",
        "file:///etc/passwd",
        "/etc/passwd",
        "http://169.254.169.254/latest/meta-data",
        "https://example.org/image.jpg?X-Amz-Signature=secret",
    ],
)
def test_refused(address: str) -> None:
    with pytest.raises(ImageAddressInvalid) as raised:
        parse_object(address)
    assert "secret@" not in str(raised.value)
    assert "Signature" not in str(raised.value)


def test_https_is_named() -> None:
    with pytest.raises(ImageAddressInvalid, match="https addresses are not enabled on this worker"):
        parse_object("https://example.org/image.jpg")


def test_a_pasted_signature_is_not_repeated() -> None:
    assert str(parse_object("s3://bucket/key?X-Amz-Signature=secret")) == "s3://bucket/key"


@given(st.text(st.characters(codec="utf-8"), min_size=1, max_size=200))
def test_every_other_key_is_kept_as_it_is(key: str) -> None:
    if any(step in (".", "..") for step in key.split("/")) or "?versionId=" in key:
        return
    assert parse_object(f"s3://bucket/{key}") == ObjectAddress("bucket", key)


def test_the_path_starts_with_the_bucket() -> None:
    assert parse_object("s3://bucket/a/b?versionId=1").path == "bucket/a/b"


@given(st.binary(max_size=300))
def test_inline_images_arrive_whole(image: bytes) -> None:
    address = "data:image/png;base64," + base64.b64encode(image).decode()
    assert is_inline(address)
    assert unpack_inline(address, max_bytes=len(image)) == image


@given(st.binary(min_size=1, max_size=300))
def test_inline_images_have_an_exact_limit(image: bytes) -> None:
    with pytest.raises(ImageTooLarge, match=f"{len(image)} bytes"):
        unpack_inline("data:image/png;base64," + base64.b64encode(image).decode(), max_bytes=len(image) - 1)


@pytest.mark.parametrize(
    "address",
    [
        "data:",
        "data:image/png," + "%00",
        "data:image/png;base64",
        "data:text/html;base64,AAAA",
        "data:image/png;charset=x;base64,AAAA",
        "data:image/png;base64,AAA",
        "data:image/png;base64,AA AA",
        "data:image/png;base64,AA\nAA",
        "data:image/png;base64,AA-_",
        "data:image/png;base64,AAAA====",
        "data:image/png;base64,AAé=",
    ],
)
def test_inline_base64_is_strict(address: str) -> None:
    with pytest.raises(ImageAddressInvalid):
        unpack_inline(address, max_bytes=100)
