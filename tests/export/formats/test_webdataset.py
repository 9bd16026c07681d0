import json
import tarfile
from itertools import groupby
from pathlib import Path
from typing import Any

from stoop.demo.embedded import EmbeddedS3
from tests.export.truth import Truth, exported, line


def samples(folder: Path) -> dict[str, dict[str, bytes]]:
    """The samples of a WebDataset reader: neighbours that agree up to the first dot of their last step are a sample."""
    found: dict[str, dict[str, bytes]] = {}
    for path in sorted(folder.glob("*.tar")):
        with tarfile.open(path) as shard:
            members = [(*cut(member.name), member) for member in shard]
            for key, group in groupby(members, key=lambda each: each[0]):
                assert key not in found, "a sample stands together"
                found[key] = {suffix: content(shard, member) for _, suffix, member in group}
    return found


def cut(name: str) -> tuple[str, str]:
    folder, slash, last = name.rpartition("/")
    stem, _, suffix = last.partition(".")
    assert stem, "or readers skip it"
    return f"{folder}{slash}{stem}", suffix


def content(shard: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    file = shard.extractfile(member)
    assert file is not None
    return file.read()


def test_an_image_and_its_json_share_a_name(truth: Truth, tmp_path: Path) -> None:
    exported(truth.results, "webdataset", tmp_path / "wds", images=truth.images)
    found = samples(tmp_path / "wds")
    assert list(found) == [picture.name for picture in truth.pictures]
    for picture in truth.pictures:
        sample = found[picture.name]
        assert set(sample) == {"png", "json"}
        assert sample["png"] == picture.encoded
        assert (facts := json.loads(sample["json"]))["image"].endswith(f"/{picture.name}.png")
        assert (facts["width"], facts["height"]) == picture.size


def test_the_json_has_the_results(truth: Truth, tmp_path: Path) -> None:
    exported(truth.results, "webdataset", tmp_path / "wds", images=truth.images)
    results = [result for sample in samples(tmp_path / "wds").values() for result in facts(sample)["results"]]

    def outputs(lines: list[dict[str, Any]]) -> list[str]:
        return sorted(json.dumps(each["output"], sort_keys=True) for each in lines)

    assert outputs(results) == outputs(truth.lines())


def test_stored_images_are_fetched(truth: Truth, tmp_path: Path, s3: EmbeddedS3, stored: str) -> None:
    exported(truth.results, "webdataset", tmp_path / "wds", images="s3")
    found = samples(tmp_path / "wds")
    assert [sample["png"] for sample in found.values()] == [picture.encoded for picture in truth.pictures]


def test_dots_in_names_cut_no_key(truth: Truth, tmp_path: Path) -> None:
    names = ["a.b.png", "a.c.png", ".hidden.png", "v1.0/a.png", "a_b.png"]
    for name in names:
        path = truth.images / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(truth.pictures[0].encoded)
    truth.write(line(f"s3://photos/{name}", "caption", caption=name) for name in names)
    exported(truth.results, "webdataset", tmp_path / "wds", images=truth.images)
    found = samples(tmp_path / "wds")
    assert len(found) == len(names)
    assert [facts(sample)["results"][0]["output"]["caption"] for sample in found.values()] == names


def test_a_name_without_a_suffix_gets_that_of_its_format(truth: Truth, tmp_path: Path) -> None:
    (truth.images / "photo").write_bytes(truth.pictures[0].encoded)
    (truth.images / "note.txt").write_bytes(b"no image")
    truth.write(line(f"s3://photos/{name}", "caption", caption="x") for name in ("photo", "note.txt"))
    exported(truth.results, "webdataset", tmp_path / "wds", images=truth.images)
    found = samples(tmp_path / "wds")
    assert {key: set(sample) for key, sample in found.items()} == {"photo": {"png", "json"}, "note": {"bin", "json"}}


def test_the_same_results_make_the_same_shards(truth: Truth, tmp_path: Path) -> None:
    for name in ("one", "other"):
        exported(truth.results, "webdataset", tmp_path / name, images=truth.images)
    one, other = (tmp_path / name / "shard-000000.tar" for name in ("one", "other"))
    assert one.read_bytes() == other.read_bytes()


def test_a_thousand_images_fill_a_shard(truth: Truth, tmp_path: Path) -> None:
    inline = "data:image/png;base64," + "A" * 8
    truth.write(line(f"{inline}{number:04}", "caption", caption="x") for number in range(1001))
    exported(truth.results, "webdataset", tmp_path / "wds")
    assert [path.name for path in sorted((tmp_path / "wds").iterdir())] == ["shard-000000.tar", "shard-000001.tar"]
    assert len(samples(tmp_path / "wds")) == 1001


def facts(sample: dict[str, bytes]) -> dict[str, Any]:
    return dict(json.loads(sample["json"]))
