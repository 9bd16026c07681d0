import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from stoop.bulk.row import Row
from stoop.bulk.sources import Source
from stoop.bulk.sources.texts import GroupedTexts, open_texts
from stoop.errors import ConfigError
from stoop_schemas.texts import TEXTS_LENGTH_LIMIT


def write(path: Path, content: bytes) -> Source:
    path.write_bytes(content)
    return open_texts(str(path), "text")


def read(source: Source) -> dict[str, tuple[str | None, object]]:
    """The text of each row with its own id, or the reason why it has none."""
    return {row.name: (row.fields.get("custom_id"), _text(row)) for row in source.rows()}


def _text(row: Row) -> object:
    return row.problem.message if row.problem else row.fields["input"]


def test_lines_are_texts_or_objects_with_one_and_bad_ones_are_named_by_their_number(tmp_path: Path) -> None:
    lines = [
        b'{"id": 7, "text": "a cat"}',
        b'"a dog"',
        b"",
        b"not json",
        b'{"id": "x"}',
        b'{"id": "y", "text": null}',
        b'{"text": " "}',
        b'{"text": ["a"]}',
        json.dumps({"text": "x" * (TEXTS_LENGTH_LIMIT + 1)}).encode(),
        b'{"text": "\xff"}',
        b"[1]",
        b'{"custom_id": "z", "text": "a fish"}',
    ]
    found = read(write(tmp_path / "texts.jsonl", b"\n".join(lines)))
    assert {name: text for name, (_, text) in found.items() if isinstance(text, list)} == {
        "1": ["a cat"],
        "2": ["a dog"],
        "12": ["a fish"],
    }
    assert (found["1"][0], found["12"][0]) == ("7", "z")
    reasons = {name: str(text) for name, (_, text) in found.items() if not isinstance(text, list)}
    wanted = {
        "4": "not JSON",
        "5": "neither a text nor an object with the field 'text'",
        "6": "the text is missing",
        "7": "the text is empty",
        "8": "the text is a list",
        "9": f"at most {TEXTS_LENGTH_LIMIT}",
        "10": "not JSON",
        "11": "neither a text nor",
    }
    assert reasons.keys() == wanted.keys()
    assert all(part in reasons[name] for name, part in wanted.items()), reasons


def test_a_csv_file_may_have_bytes_that_are_not_text(tmp_path: Path) -> None:
    source = write(tmp_path / "texts.csv", b'id,text\na,"one\ntwo"\nb,caf\xe9\nc,\nd,three\n')
    assert read(source) == {
        "1": ("a", ["one\ntwo"]),
        "2": ("b", "the text is not valid UTF-8"),
        "3": ("c", "the text is empty"),
        "4": ("d", ["three"]),
    }


def test_a_parquet_file_gives_its_column(tmp_path: Path) -> None:
    pq.write_table(
        pa.table({"body": ["one", None, "three"], "id": [1, 2, 3], "rest": [0, 0, 0]}), tmp_path / "a.parquet"
    )
    source = open_texts(str(tmp_path / "a.parquet"), "body")
    assert read(source) == {"1": ("1", ["one"]), "2": ("2", "the text is missing"), "3": ("3", ["three"])}
    with pytest.raises(ConfigError, match=r"no column 'text': give --column, one of body, id, rest"):
        list(open_texts(str(tmp_path / "a.parquet"), "text").rows())


def test_a_group_has_no_more_texts_and_characters_than_a_job_should(tmp_path: Path) -> None:
    texts = ["a", "b", "", "c", "x" * (TEXTS_LENGTH_LIMIT // 4), "d", "e"]
    lines = "".join(json.dumps({"text": text}) + "\n" for text in texts)
    source = GroupedTexts(write(tmp_path / "texts.jsonl", lines.encode()), 2)
    assert [(row.name, len(row.parts)) for row in source.rows()] == [
        ("1-2", 2),
        ("3", 1),
        ("4-4", 1),
        ("5-5", 1),
        ("6-7", 2),
    ]
    assert source.count() == 7
    assert GroupedTexts(source.texts, 2, most=3).count() == 3
    assert [row.name for row in GroupedTexts(source.texts, 2, most=2).rows()] == ["1-2"]


def test_a_source_that_has_no_texts_is_refused(tmp_path: Path) -> None:
    (tmp_path / "texts.txt").write_text("a\n")
    for named, reason in ((tmp_path / "texts.txt", "give a .jsonl"), (tmp_path, "no file"), ("s3://a/b", "no file")):
        with pytest.raises(ConfigError, match=reason):
            open_texts(str(named), "text")
