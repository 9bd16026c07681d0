import json
from pathlib import Path

import pytest

from stoop.config import ProducerConfig
from stoop.demo.embedded import EmbeddedS3
from stoop.errors import ConfigError, UploadFailed
from stoop.export.images import open_images
from tests.export.truth import BUCKET, Truth, exported, failed, line


def records(path: Path) -> list[dict[str, str]]:
    return [json.loads(each) for each in path.read_text().splitlines()]


def sizes(path: Path) -> dict[str, tuple[int, int]]:
    return {each["file_name"]: (each["width"], each["height"]) for each in json.loads(path.read_bytes())["images"]}


@pytest.mark.parametrize(
    "place", ["photos/set/shapes-1.png", "set/shapes-1.png", "shapes-1.png"], ids=["whole", "key", "name"]
)
def test_an_image_is_found_by_as_much_of_its_path_as_is_there(truth: Truth, tmp_path: Path, place: str) -> None:
    folder = tmp_path / "elsewhere"
    (folder / place).parent.mkdir(parents=True)
    (folder / place).write_bytes(truth.pictures[0].encoded)
    truth.write([line(f"{BUCKET}/shapes-1.png", "caption", caption="x")])
    exported(truth.results, "coco", tmp_path / "c.json", images=folder)
    assert sizes(tmp_path / "c.json") == {place: truth.pictures[0].size}


def test_a_path_into_the_folder_is_relative_to_it(truth: Truth, tmp_path: Path) -> None:
    truth.write([line(str(truth.images / "shapes-1.png"), "caption", caption="x")])
    exported(truth.results, "coco", tmp_path / "c.json", images=truth.images)
    assert list(sizes(tmp_path / "c.json")) == ["shapes-1.png"]


def test_no_path_leads_out_of_the_folder(truth: Truth, tmp_path: Path) -> None:
    secret = tmp_path / "secret.png"
    secret.write_bytes(truth.pictures[0].encoded)
    paths = ["../secret.png", str(secret), f"{truth.images}/../secret.png", "s3://photos/../../secret.png"]
    truth.write([*truth.lines(), *(line(path, "caption", caption="stolen") for path in paths)])
    for name in ("yolo", "webdataset", "fiftyone"):
        report = exported(truth.results, name, tmp_path / name, images=truth.images)
        assert report.errors == len(paths)
        assert report.written["images"] == len(truth.pictures)


def test_missing_and_broken_images_are_listed_and_the_rest_is_written(truth: Truth, tmp_path: Path) -> None:
    (truth.images / "broken.png").write_bytes(b"no image")
    lost = [line(f"{BUCKET}/{name}.png", "caption", caption="x") for name in ("gone", "gone", "broken")]
    truth.write([*lost, *truth.lines(), failed(f"{BUCKET}/z.png"), line(None, "query", question="?", answer="!")])
    report = exported(truth.results, "coco", tmp_path / "coco", images=truth.images)
    listed = records(tmp_path / "coco.errors.jsonl")
    assert {each["what"] for each in listed} == {f"{BUCKET}/gone.png", f"{BUCKET}/broken.png"}
    assert len(listed) == report.errors == 2, "an image is listed once"
    assert sizes(tmp_path / "coco" / "captions.json") == truth.sizes()
    assert dict(report.unfinished) == {"failed": 1}
    assert report.without_image == 1


def test_two_images_cannot_be_one_file(truth: Truth, tmp_path: Path) -> None:
    truth.write(line(f"s3://photos/{place}/shapes-1.png", "caption", caption=place) for place in ("a", "b"))
    report = exported(truth.results, "coco", tmp_path / "c.json", images=truth.images)
    assert (report.written["images"], report.errors) == (1, 1)
    assert "already" in report.last_error


def test_without_images_the_results_must_have_sizes(truth: Truth, tmp_path: Path) -> None:
    sized = line("s3://photos/a.png", "caption", caption="x") | {"width": 30, "height": 20}
    unsized = line("s3://photos/b.png", "caption", caption="x")
    truth.write([sized, unsized])
    report = exported(truth.results, "coco", tmp_path / "c.json")
    assert sizes(tmp_path / "c.json") == {"a.png": (30, 20)}
    assert "--images" in report.last_error
    truth.write([unsized])
    with pytest.raises(ConfigError, match="--images"):
        exported(truth.results, "coco", tmp_path / "d.json")


def test_the_image_itself_is_believed_before_the_result(truth: Truth, tmp_path: Path) -> None:
    truth.write([line(f"{BUCKET}/shapes-1.png", "caption", caption="x") | {"width": 1, "height": 1}])
    exported(truth.results, "coco", tmp_path / "c.json", images=truth.images)
    assert sizes(tmp_path / "c.json") == {"shapes-1.png": truth.pictures[0].size}


def test_the_same_key_in_two_buckets_is_two_names(truth: Truth, tmp_path: Path) -> None:
    truth.write(
        line(f"s3://{bucket}/a.png", "caption", caption="x") | {"width": 3, "height": 2} for bucket in ("one", "other")
    )
    exported(truth.results, "coco", tmp_path / "c.json")
    assert len(sizes(tmp_path / "c.json")) == 2


def test_stored_images_are_measured(truth: Truth, tmp_path: Path, s3: EmbeddedS3, stored: str) -> None:
    gone = json.dumps(line(f"{stored}/gone.png", "caption", caption="x"))
    truth.results.write_text(truth.results.read_text() + gone + "\n")
    report = exported(truth.results, "coco", tmp_path / "coco", images="s3")
    assert sizes(tmp_path / "coco" / "instances.json") == {f"set/{n}": size for n, size in truth.sizes().items()}
    [lost] = records(tmp_path / "coco.errors.jsonl")
    assert lost["what"] == f"{stored}/gone.png"
    assert report.errors == 1


def test_a_store_that_refuses_ends_the_export(
    truth: Truth, tmp_path: Path, s3: EmbeddedS3, stored: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    truth.write(line(f"{stored}/{number}.png", "caption", caption="x") for number in range(200))
    with pytest.raises(UploadFailed, match="credentials"):
        exported(truth.results, "coco", tmp_path / "coco", images="s3")
    assert not (tmp_path / "coco").exists()


def test_a_signed_address_is_listed_without_its_query(truth: Truth, tmp_path: Path) -> None:
    truth.write([*truth.lines(), line("https://example.org/a.jpg?signature=secret", "caption", caption="x")])
    report = exported(truth.results, "coco", tmp_path / "coco", images=truth.images)
    assert "secret" not in (tmp_path / "coco.errors.jsonl").read_text() + report.last_error
    assert report.errors == 1


def test_a_folder_that_is_not_there_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such folder"):
        open_images(str(tmp_path / "absent"), ProducerConfig())
