from pathlib import PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoop.export.naming import flat, own_name, sample_key, stem, steps, with_digest

TEXT = st.text(st.characters(exclude_categories=["Cs"]))


@pytest.mark.parametrize(
    ("address", "name"),
    [
        ("s3://photos/set/a.jpg", "set/a.jpg"),
        ("s3://photos/set/a.jpg?versionId=abc", "set/a.jpg"),
        ("s3://photos/what?.jpg", "what?.jpg"),
        ("https://user:secret@example.org/a%20b.jpg?token=1#x", "example.org/a b.jpg"),
        ("photos/a.jpg", "photos/a.jpg"),
        ("/photos/a.jpg", "photos/a.jpg"),
        ("../../etc/passwd", "etc/passwd"),
        ("s3://photos/../../etc/passwd", "etc/passwd"),
        ("https://example.org/%2e%2e/%2e%2e/etc/passwd", "example.org/etc/passwd"),
        ("a/./b//c.jpg", "a/b/c.jpg"),
        ("C:\\photos\\a.jpg", "C:_photos_a.jpg"),
        ("a\nb\x00c.jpg", "a_b_c.jpg"),
    ],
)
def test_an_address_becomes_a_relative_path(address: str, name: str) -> None:
    assert own_name(address) == name


@given(st.one_of(TEXT, st.builds("s3://{}/{}".format, TEXT, TEXT), st.builds("https://e.org/{}".format, TEXT)))
def test_no_address_leaves_the_folder(address: str) -> None:
    taken = steps(address)
    assert taken
    assert not {"", ".", ".."} & set(taken)
    assert not any("/" in step or "\n" in step or "\x00" in step for step in taken)
    assert not PurePosixPath(own_name(address)).is_absolute()


def test_long_names_fit_a_file_system() -> None:
    for address in ("a" * 300 + ".jpg", "ä" * 300 + ".jpg", "/".join(["step"] * 500) + "/a.jpg"):
        name = own_name(address)
        assert name.endswith(".jpg")
        assert len(name.encode()) < 1200
        assert all(len(step.encode()) <= 255 for step in with_digest(name, address).split("/"))
    assert own_name("a" * 300 + "b.jpg") != own_name("a" * 300 + "c.jpg")


def test_inline_images_are_named_by_their_bytes() -> None:
    one, other = "data:image/jpeg;base64,AAAA", "data:image/jpeg;base64,AAAB"
    assert own_name(one) != own_name(other)
    assert own_name(one) == own_name(one)
    assert own_name(one).endswith(".jpg")


def test_names_for_the_formats() -> None:
    assert flat("a/b.jpg") == "a_b.jpg"
    assert stem("a.b/c.d.jpg") == "a.b/c.d"
    assert sample_key("a.b/c.d.jpg") == "a.b/c_d"
    assert with_digest("a/b.jpg", "one") != with_digest("a/b.jpg", "other")
    assert with_digest("a/b.jpg", "one").startswith("a/b-")
