import pytest

from stoop_schemas.address import ObjectAddress, object_address, parse_object


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("s3://bucket/key", ObjectAddress("bucket", "key")),
        ("s3://bucket/#1 a?.jpg", ObjectAddress("bucket", "#1 a?.jpg")),
        ("s3://bucket/100%25?versionId=3L4k_", ObjectAddress("bucket", "100%25", "3L4k_")),
        ("s3://bucket/a?b?versionId=1", ObjectAddress("bucket", "a?b", "1")),
    ],
)
def test_a_key_is_used_literally(address: str, expected: ObjectAddress) -> None:
    assert parse_object(address) == expected
    assert expected.path == f"{expected.bucket}/{expected.key}"


@pytest.mark.parametrize(
    "address", ["", "s3://bucket", "https://h/x?Signature=secret", "s3://b:c/key", "s3://buck/../x"]
)
def test_a_malformed_address_is_refused(address: str) -> None:
    with pytest.raises(ValueError, match=r"address must be|segment") as raised:
        parse_object(address)
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize("key", ["key", "#1 a?.jpg", "q?versionId=a/b", "a?versionId=", "?versionId=3.png"])
def test_an_address_is_read_as_it_was_written(key: str) -> None:
    assert parse_object(object_address("bucket", key)) == ObjectAddress("bucket", key)


@pytest.mark.parametrize("key", ["q?versionId=3.png", "a/../b", "k" * 1025])
def test_a_key_that_no_address_can_name_is_refused(key: str) -> None:
    with pytest.raises(ValueError, match="key"):
        object_address("bucket", key)
