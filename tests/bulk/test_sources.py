import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stoop.bulk.row import Ask, Row
from stoop.bulk.row_run import check_row
from stoop.bulk.sources import Source, open_source
from stoop.config import ProducerConfig
from stoop.demo.embedded import EmbeddedS3
from stoop.errors import ConfigError, InvalidJob, UploadFailed

CONFIG = ProducerConfig(redis_url="redis://127.0.0.1:1")


def open_at(path: Path, **options: str) -> Source:
    return open_source(str(path), CONFIG, **options)


def write_lines(path: Path, *lines: object) -> Path:
    path.write_text("".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines))
    return path


def problems(source: Source) -> dict[str, str]:
    return {row.name: row.problem.message for row in source.rows() if row.problem}


def test_a_folder_gives_its_images_by_their_paths(tmp_path: Path) -> None:
    for name in ("b.jpg", "a.PNG", "deep/er/c.webp", "notes.txt", ".hidden/d.jpg", "._e.jpg"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"12345")
    (tmp_path / "loop").symlink_to(tmp_path)
    (tmp_path / "link.jpg").symlink_to(tmp_path / "b.jpg")
    source = open_at(tmp_path)
    found = {row.name: row for row in source.rows()}
    assert set(found) == {"b.jpg", "a.PNG", "deep/er/c.webp", "link.jpg"}
    assert source.count() == 4
    assert found["deep/er/c.webp"].image == tmp_path / "deep/er/c.webp"
    assert found["a.PNG"].bytes == 5
    assert [row.name for row in open_at(tmp_path, match="deep/*").rows()] == ["deep/er/c.webp"]


def test_a_folder_that_cannot_be_read_costs_no_other_image(tmp_path: Path) -> None:
    for name in ("a.jpg", "gone/b.jpg", "kept/c.jpg"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"")
    rows = open_at(tmp_path).rows()
    assert next(rows).name == "a.jpg"
    shutil.rmtree(tmp_path / "gone")  # root ignores permissions
    gone, kept = rows
    assert (gone.name, kept.name) == ("gone/", "kept/c.jpg")
    assert gone.problem is not None
    assert gone.problem.message == f"cannot read the folder {tmp_path / 'gone'}: No such file or directory"


def test_a_root_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    source = open_at(tmp_path)
    tmp_path.rmdir()
    with pytest.raises(ConfigError, match="cannot read the folder"):
        list(source.rows())


def test_a_file_name_in_another_encoding_is_a_name(tmp_path: Path) -> None:
    Path(f"{tmp_path}/caf\udce9.jpg").write_bytes(b"")
    [row] = open_at(tmp_path).rows()
    assert row.name == "caf\\udce9.jpg"
    assert (row.shown_image or "").endswith("caf\\udce9.jpg")


@pytest.fixture
def bucket(s3: EmbeddedS3, monkeypatch: pytest.MonkeyPatch) -> tuple[EmbeddedS3, ProducerConfig]:
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)
    return s3, ProducerConfig(s3_endpoint=s3.endpoint, s3_region=s3.region, s3_path_style=True)


def test_a_prefix_gives_its_images_by_their_addresses(bucket: tuple[EmbeddedS3, ProducerConfig]) -> None:
    s3, config = bucket
    for key in ("listed/a b.jpg", "listed/deep/ü.png", "listed/notes.txt", "listed-not/c.jpg"):
        s3.client().put_object(Bucket=s3.bucket, Key=key, Body=b"123")
    source = open_source(f"s3://{s3.bucket}/listed/", config)
    rows = list(source.rows())
    assert [row.name for row in rows] == [f"s3://{s3.bucket}/listed/{name}" for name in ("a b.jpg", "deep/ü.png")]
    assert [row.image for row in rows] == [row.name for row in rows]
    assert {row.bytes for row in rows} == {3}
    assert source.count() == 2
    matched = open_source(f"s3://{s3.bucket}/listed/", config, match="deep/*")
    assert [row.name for row in matched.rows()] == [f"s3://{s3.bucket}/listed/deep/ü.png"]


def test_a_key_that_no_address_can_name_is_a_problem_of_its_row(bucket: tuple[EmbeddedS3, ProducerConfig]) -> None:
    s3, config = bucket
    for key in ("odd/a.png", "odd/q?versionId=3.png"):
        s3.client().put_object(Bucket=s3.bucket, Key=key, Body=b"123")
    good, odd = open_source(f"s3://{s3.bucket}/odd/", config).rows()
    assert (good.image, good.problem) == (good.name, None)
    assert (odd.name, odd.image) == (f"s3://{s3.bucket}/odd/q?versionId=3.png", None)
    assert odd.problem is not None and "copy the object to another key" in odd.problem.message


def test_a_prefix_is_listed_no_further_than_it_is_read(bucket: tuple[EmbeddedS3, ProducerConfig]) -> None:
    s3, config = bucket
    store = s3.client()
    for number in range(1010):  # a page has a thousand
        store.put_object(Bucket=s3.bucket, Key=f"many/{number:04}.jpg", Body=b"")
    rows = open_source(f"s3://{s3.bucket}/many/", config).rows()
    assert next(rows).name.endswith("0000.jpg")
    store.delete_object(Bucket=s3.bucket, Key="many/1005.jpg")
    assert sum(1 for _ in rows) == 1008


def test_a_bucket_that_is_not_there_is_reported(bucket: tuple[EmbeddedS3, ProducerConfig]) -> None:
    with pytest.raises(UploadFailed, match=r"NoSuchBucket .*s3://no-such-bucket/x"):
        list(open_source("s3://no-such-bucket/x", bucket[1]).rows())


def test_credentials_that_are_missing_are_reported(
    bucket: tuple[EmbeddedS3, ProducerConfig], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in bucket[0].environment:
        if name.startswith("AWS_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name in ("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "absent"))
    with pytest.raises(UploadFailed, match=r"no credentials .* AWS_ACCESS_KEY_ID"):
        list(open_source("s3://photos/x", bucket[1]).rows())


def test_moondreams_lines_are_rows(tmp_path: Path) -> None:
    path = write_lines(
        tmp_path / "batch.jsonl",
        {"id": "one", "skill": "caption", "image": "s3://photos/a.jpg", "length": "short"},
        {"id": 2, "skill": "query", "image": "in/here.jpg", "question": "why?", "max_tokens": 9, "beside": 1},
        "",
        {"skill": "detect", "image": "data:image/png;base64,AAAA", "object": "cat", "settings": {"max_objects": 3}},
    )
    source = open_at(path)
    rows = list(source.rows())
    assert rows == [
        Row("1", "s3://photos/a.jpg", "caption", {"length": "short", "custom_id": "one"}),
        Row("2", tmp_path / "in/here.jpg", "query", {"question": "why?", "custom_id": "2"}, {"max_tokens": 9}),
        Row("4", "data:image/png;base64,AAAA", "detect", {"object": "cat"}, {"max_objects": 3}),
    ]
    assert source.count() == 3


def test_malformed_lines_fail_alone(tmp_path: Path) -> None:
    path = write_lines(
        tmp_path / "batch.jsonl",
        '{"id": "torn", "skill": "capt',
        "[1, 2]",
        {"id": "ok", "skill": "caption", "image": "s3://photos/a.jpg"},
        {"skill": "caption", "image": ["s3://photos/a.jpg"]},
        {"skill": "caption", "image": "a\0b.jpg"},
        {"skill": "caption", "image": "s3://photos/a.jpg", "settings": "hot"},
        {"skill": "caption", "image": f"data:image/png;base64,{'A' * (9 << 20)}"},
        {"id": "last", "skill": "caption", "image": "s3://photos/b.jpg"},
    )
    source = open_at(path)
    found = problems(source)
    assert set(found) == {"1", "2", "4", "5", "6", "7"}
    assert found["1"].startswith("not JSON")
    assert "over 8388608 bytes" in found["7"]
    assert [row.fields["custom_id"] for row in source.rows() if not row.problem] == ["ok", "last"]
    assert source.count() == 8


def chat(content: object, **more: object) -> dict[str, Any]:
    body = {"model": "gpt-4o", "messages": [{"role": "user", "content": content}], **more}
    return {"custom_id": "r-1", "method": "POST", "url": "/v1/chat/completions", "body": body}


PHOTO_AT = "https://photos.example/a.jpg"
PHOTO = {"type": "image_url", "image_url": {"url": PHOTO_AT, "detail": "low"}}
TEXT = {"type": "text", "text": "What is this?"}
JSON = {"type": "json_object"}


def test_openais_lines_are_chats(tmp_path: Path) -> None:
    system = {"role": "system", "content": "Be brief."}
    spoken = chat([TEXT, PHOTO], max_tokens=20, temperature=0.0, seed=3)
    spoken["body"]["messages"].insert(0, system)
    path = write_lines(
        tmp_path / "batch.jsonl",
        spoken,
        chat("Two and two?", n=None, tools=[], logprobs=False),
        chat([PHOTO, TEXT], max_completion_tokens=5, stop="END", presence_penalty=1, response_format=JSON),
        chat([PHOTO, TEXT], max_pixels=131072, min_pixels=65536),
    )
    first, second, third, fourth = open_at(path).rows()
    photo = {"type": "image_url", "image_url": {"url": "https://photos.example/a.jpg"}}
    assert first.fields == {
        "messages": [system, {"role": "user", "content": [TEXT, photo]}],
        "custom_id": "r-1",
    }
    assert first.settings == {"max_tokens": 20, "temperature": 0.0, "seed": 3, "max_pixels": 262144}
    assert (first.skill, first.images, first.shown_image) == ("chat", [PHOTO_AT], PHOTO_AT)
    assert second.fields["messages"] == [{"role": "user", "content": "Two and two?"}]
    asked = {"max_tokens": 5, "stop": ["END"], "presence_penalty": 1, "response_format": JSON}
    assert third.settings == {**asked, "max_pixels": 262144}
    assert fourth.settings == {"max_pixels": 131072, "min_pixels": 65536}, "what the line asks for itself"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (chat([TEXT], n=2), "n is not supported"),
        (chat([TEXT], tools=[{"type": "function"}]), "tools is not supported"),
        (chat([TEXT], logprobs=True), "logprobs is not supported"),
        (chat([TEXT], guided_regex="a"), "guided_regex is not supported: use regex"),
        (chat([{"type": "input_audio"}]), "content must be"),
        (chat(None), "content must be"),
        (chat([{"type": "image_url", "image_url": {"url": PHOTO_AT, "detail": "tiny"}}]), "detail of an image"),
        ({**chat([TEXT]), "url": "/v1/embeddings"}, "url must be"),
        ({"custom_id": "x", "body": {"model": "m", "input": "?"}}, r"body\.messages"),
        ({"custom_id": "x", "body": {"messages": [{"role": "tool", "content": "Hi"}]}}, "message roles must be"),
        ({"body": {"messages": [{"role": "assistant", "content": "", "tool_calls": [{"id": "1"}]}]}}, "call no tools"),
    ],
)
def test_an_openai_line_that_cannot_run_here_has_a_reason(tmp_path: Path, line: object, message: str) -> None:
    [row] = open_at(write_lines(tmp_path / "batch.jsonl", line)).rows()
    assert row.problem is not None
    assert message.replace("\\", "") in row.problem.message


def test_a_line_may_bring_texts_and_becomes_a_job(tmp_path: Path) -> None:
    embed = {"id": "e", "skill": "embed", "input": ["a", "b"], "prompt_name": "query", "dimensions": 12}
    rerank = {"id": "r", "skill": "rerank", "query": "what?", "documents": ["a"], "truncate": True}
    rows = list(open_at(write_lines(tmp_path / "texts.jsonl", embed, rerank)).rows())
    for row in rows:
        check_row(row, Ask())
    assert rows[0].fields == {"custom_id": "e", "input": ["a", "b"], "prompt_name": "query", "dimensions": 12}
    assert rows[1].fields == {"custom_id": "r", "query": "what?", "documents": ["a"], "truncate": True}


def test_messages_in_another_form_cost_their_own_line_alone(tmp_path: Path) -> None:
    lines = [{"skill": "chat", "messages": messages} for messages in ("hello", {"role": "user"}, ["hello"], 3)]
    for row in open_at(write_lines(tmp_path / "chats.jsonl", *lines)).rows():
        assert row.images == []
        with pytest.raises(InvalidJob, match=r"\$\.messages"):
            check_row(row, Ask())


def test_the_images_of_a_chat_may_lie_beside_the_file(tmp_path: Path) -> None:
    beside = {"type": "image_url", "image_url": {"url": "a.jpg"}}
    [row] = open_at(write_lines(tmp_path / "batch.jsonl", chat([TEXT, beside, PHOTO]))).rows()
    assert row.images == [tmp_path / "a.jpg", PHOTO_AT]
    assert row.is_local and row.shown_image is None


def test_one_csv_column_names_the_images_and_the_others_fill_the_jobs(tmp_path: Path) -> None:
    path = tmp_path / "photos.csv"
    path.write_text(
        "\ufeffid,photo,question,notes\n"
        'first,s3://photos/a.jpg,"Who, and\nwhy?",x\n\n,in/b.jpg,,\nthird,s3://photos/c.jpg,What is love?,\n'
    )
    source = open_at(path, column="photo")
    assert list(source.rows()) == [
        Row("1", "s3://photos/a.jpg", None, {"question": "Who, and\nwhy?", "custom_id": "first"}),
        Row("2", tmp_path / "in/b.jpg"),
        Row("3", "s3://photos/c.jpg", None, {"question": "What is love?", "custom_id": "third"}),
    ]
    assert source.count() == 3
    with pytest.raises(ConfigError, match="no column 'image': give --column, one of id, photo, question, notes"):
        list(open_at(path).rows())


def test_an_empty_image_is_a_problem_of_its_row(tmp_path: Path) -> None:
    table = tmp_path / "photos.csv"
    table.write_text("image,question\n,How many people?\ns3://photos/a.jpg,How many people?\n")
    assert set(problems(open_at(table))) == {"1"}
    lines = write_lines(
        tmp_path / "batch.jsonl",
        {"skill": "query", "image": None, "question": "How many people?"},
        {"skill": "query", "image": "", "question": "How many people?"},
        {"skill": "query", "question": "What is love?"},
    )
    assert set(problems(open_at(lines))) == {"1", "2"}


def test_tabs_part_the_columns_of_a_tsv(tmp_path: Path) -> None:
    path = tmp_path / "photos.tsv"
    path.write_text("image\tobject\ns3://photos/a.jpg\tred, wide car\n")
    [row] = open_at(path).rows()
    assert row.fields == {"object": "red, wide car"}


def test_a_file_that_is_not_csv_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "photos.csv"
    path.write_bytes(b"image\ncaf\xe9.jpg\n")
    with pytest.raises(ConfigError, match="not a CSV file in UTF-8"):
        list(open_at(path).rows())


def test_an_unquoted_comma_is_a_problem_of_its_row(tmp_path: Path) -> None:
    path = tmp_path / "photos.csv"
    path.write_text("image,question\ns3://photos/a.jpg,How many cars, and why?\ns3://photos/b.jpg,Why?,\n")
    assert set(problems(open_at(path))) == {"1"}
    assert [row.fields for row in open_at(path).rows()][1] == {"question": "Why?"}


@pytest.mark.parametrize(
    "written, message",
    [
        ('image,question\na.jpg,Why?\nb.jpg,"Who?\nc.jpg,What?\n', "a quote is open from line 3 to the end"),
        ("image;question\na.jpg;Why?\n", "has ';' between its columns: save it with commas"),
        ("image,question,image\na.jpg,Why?,b.jpg\n", "has 2 columns 'image'"),
    ],
)
def test_a_csv_that_would_lose_rows_or_texts_is_refused(tmp_path: Path, written: str, message: str) -> None:
    path = tmp_path / "photos.csv"
    path.write_text(written)
    with pytest.raises(ConfigError, match=message):
        list(open_at(path).rows())


def test_a_parquet_column_gives_addresses_bytes_or_structs(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")

    def rows(column: list[Any]) -> list[Row]:
        pq.write_table(
            pa.table({"image": column, "id": [*range(len(column))], "unused": column}), tmp_path / "p.parquet"
        )
        source = open_at(tmp_path / "p.parquet")
        assert source.count() == len(column)
        return list(source.rows())

    assert [row.image for row in rows([f"s3://photos/{number}.jpg" for number in range(40)])] == [
        f"s3://photos/{number}.jpg" for number in range(40)
    ]
    jpeg, empty = rows([b"jpeg", None])
    assert jpeg.image == b"jpeg"
    assert empty.problem is not None
    structs = rows([{"bytes": b"jpeg", "path": "a.jpg"}, {"bytes": None, "path": "b.jpg"}])
    assert [row.image for row in structs] == [b"jpeg", tmp_path / "b.jpg"]
    assert [row.fields for row in structs] == [{"custom_id": "0"}, {"custom_id": "1"}]
    [number] = rows([7])
    assert number.problem is not None


def test_a_damaged_page_of_a_parquet_file_costs_its_own_rows(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "p.parquet"
    images = [f"s3://photos/{number:05}.jpg" for number in range(1000)]
    pq.write_table(pa.table({"image": images}), path, row_group_size=100, use_dictionary=False)
    encoded = bytearray(path.read_bytes())
    middle = len(encoded) // 2
    encoded[middle : middle + 100] = b"\xff" * 100
    path.write_bytes(encoded)
    rows = list(open_at(path).rows())
    assert [row.name for row in rows] == [str(number) for number in range(1, 1001)]
    whole = {row.name: row.image for row in rows if not row.problem}
    assert 800 <= len(whole) < 1000
    assert all(image == images[int(name) - 1] for name, image in whole.items())
    assert all("is damaged" in problem for problem in problems(open_at(path)).values())


def test_a_file_that_is_not_parquet_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    (tmp_path / "p.parquet").write_bytes(b"PAR?")
    with pytest.raises(ConfigError, match="cannot read"):
        list(open_at(tmp_path / "p.parquet").rows())


@pytest.mark.parametrize(
    ("named", "options", "message"),
    [
        ("nowhere", {}, "no file or folder"),
        ("file.zip", {}, "give a folder, an s3:// prefix"),
        ("s3://", {}, "names no bucket"),
        ("s3://bucket/batch.jsonl", {}, "download it"),
        ("file.jsonl", {"match": "*.jpg"}, "--match goes with"),
        ("file.jsonl", {"column": "photo"}, "--column goes with"),
        (".", {"column": "photo"}, "--column goes with"),
    ],
)
def test_an_unknown_source_is_refused_with_the_possible_ones(
    tmp_path: Path, named: str, options: dict[str, str], message: str
) -> None:
    for name in ("file.zip", "file.jsonl"):
        (tmp_path / name).write_text("")
    with pytest.raises(ConfigError, match=message):
        open_source(named if named.startswith("s3://") else str(tmp_path / named), CONFIG, **options)


def test_a_file_is_identified_by_its_content_and_a_folder_by_its_path(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "batch.jsonl", {"id": "a" * 70_000})
    changes: list[Callable[[], object]] = [
        lambda: write_lines(path, {"id": "b" + "a" * 69_999}),
        lambda: write_lines(path, {"id": "a" * 70_000}, {"id": "more"}),
        lambda: write_lines(path, {"id": "a" * 200_000}),
        lambda: write_lines(path, {"id": "a" * 100_000 + "b" + "a" * 99_999}),  # the same size, and the same ends
    ]
    folder = open_at(tmp_path).facts
    for change in changes:
        before = open_at(path).facts
        change()
        assert open_at(path).facts != before
        assert open_at(path).facts["source"] == before["source"]
    assert open_at(tmp_path).facts == folder


def test_a_very_large_file_is_known_by_its_ends_and_when_it_was_written(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "batch.jsonl", {"id": "a"})
    os.truncate(path, (1 << 30) + 1)
    before = open_at(path).facts
    assert open_at(path).facts == before
    with path.open("rb+") as file:
        file.seek(1 << 29)
        file.write(b"edited")
    os.utime(path, ns=(0, before["modified"] + 1))
    assert open_at(path).facts != before
