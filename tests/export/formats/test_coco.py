import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from pycocotools.coco import COCO

from stoop.errors import ConfigError
from tests.export.truth import BUCKET, Truth, close, exported, line


def loaded(path: Path) -> COCO:
    coco = COCO(str(path))
    for member, kind in (("images", coco.imgs), ("annotations", coco.anns), ("categories", coco.cats)):
        ids = [each["id"] for each in coco.dataset.get(member, [])]
        assert all(isinstance(each, int) for each in ids)
        assert len(ids) == len(set(ids)) == len(kind), "ids are integers, and each is there once"
        assert min(ids, default=1) == 1, "evaluation takes an id of 0 for none"
    return coco


def by_image(coco: COCO, value: str) -> dict[str, list[tuple[str, Any]]]:
    """The results of `getAnnIds` by file name."""
    found = defaultdict(list)
    for image in coco.loadImgs(coco.getImgIds()):
        for annotation in coco.loadAnns(coco.getAnnIds(imgIds=image["id"])):
            label = coco.loadCats(annotation["category_id"])[0]["name"]
            found[image["file_name"]].append((label, annotation[value]))
    return found


def test_boxes_come_back_where_they_were(truth: Truth, tmp_path: Path) -> None:
    report = exported(truth.results, "coco", tmp_path / "coco", images=truth.images)
    coco = loaded(tmp_path / "coco" / "instances.json")
    found = by_image(coco, "bbox")
    for name, boxes in truth.boxes().items():
        back = sorted((label, (x, y, x + w, y + h)) for label, (x, y, w, h) in found[name])
        assert [label for label, _ in back] == [label for label, _ in boxes]
        assert all(close(one, other, 0.02) for (_, one), (_, other) in zip(back, boxes, strict=True))
    assert report.written["boxes"] == len(coco.anns)
    assert {i["file_name"]: (i["width"], i["height"]) for i in coco.imgs.values()} == truth.sizes()
    assert all(a["area"] == pytest.approx(a["bbox"][2] * a["bbox"][3], abs=0.01) for a in coco.anns.values())


def test_a_true_export_scores_full_marks(truth: Truth, tmp_path: Path) -> None:
    from pycocotools.cocoeval import COCOeval

    exported(truth.results, "coco", tmp_path / "coco", images=truth.images)
    path = tmp_path / "coco" / "instances.json"
    answers = [{**a, "score": 1.0} for a in json.loads(path.read_text())["annotations"]]
    coco = loaded(path)
    judged = COCOeval(coco, coco.loadRes(answers), "bbox")
    judged.evaluate()
    judged.accumulate()
    judged.summarize()
    assert judged.stats[0] == pytest.approx(1.0)


def test_points_are_keypoints(truth: Truth, tmp_path: Path) -> None:
    exported(truth.results, "coco", tmp_path / "coco", images=truth.images)
    coco = loaded(tmp_path / "coco" / "keypoints.json")
    found = by_image(coco, "keypoints")
    for name, points in truth.points().items():
        back = sorted((label, (x, y)) for label, (x, y, _) in found[name])
        assert all(close(one, other, 0.02) for (_, one), (_, other) in zip(back, points, strict=True))
    assert {tuple(category["keypoints"]) for category in coco.cats.values()} == {("point",)}
    assert {a["num_keypoints"] for a in coco.anns.values()} == {1}


def test_captions_of_an_image_keep_their_order(truth: Truth, tmp_path: Path) -> None:
    truth.write(line(f"{BUCKET}/shapes-1.png", "caption", caption=str(number)) for number in range(12))
    exported(truth.results, "coco", tmp_path / "coco.json", images=truth.images)
    assert [a["caption"] for a in loaded(tmp_path / "coco.json").anns.values()] == [str(n) for n in range(12)]


def test_captions_are_captions(truth: Truth, tmp_path: Path) -> None:
    exported(truth.results, "coco", tmp_path / "coco", images=truth.images)
    coco = loaded(tmp_path / "coco" / "captions.json")
    captions = {coco.imgs[a["image_id"]]["file_name"]: a["caption"] for a in coco.anns.values()}
    assert captions == {f"{picture.name}.png": f"{picture.name} of shapes" for picture in truth.pictures}


def test_an_object_that_was_not_found_is_still_a_category(truth: Truth, tmp_path: Path) -> None:
    truth.write([line(f"{BUCKET}/shapes-1.png", "detect", object="dog", objects=[])])
    exported(truth.results, "coco", tmp_path / "coco.json", images=truth.images)
    coco = loaded(tmp_path / "coco.json")
    assert [category["name"] for category in coco.cats.values()] == ["dog"]
    assert (len(coco.imgs), len(coco.anns)) == (1, 0)


def test_one_file_is_for_one_kind(truth: Truth, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"boxes and points and captions.*folder"):
        exported(truth.results, "coco", tmp_path / "all.json", images=truth.images)
    assert not (tmp_path / "all.json").exists()


def test_boxes_are_brought_into_the_image(truth: Truth, tmp_path: Path) -> None:
    boxes = [
        {"x_min": -0.5, "y_min": 0.5, "x_max": 0.5, "y_max": 1.5},
        {"x_min": 0.75, "y_min": 1.0, "x_max": 0.25, "y_max": 0.0},
        {"x_min": 1.1, "y_min": 0.0, "x_max": 1.2, "y_max": 1.0},
    ]
    truth.write([line(f"{BUCKET}/shapes-1.png", "detect", object="dog", objects=boxes)])
    report = exported(truth.results, "coco", tmp_path / "coco.json", images=truth.images)
    width, height = truth.sizes()["shapes-1.png"]
    found = [a["bbox"] for a in loaded(tmp_path / "coco.json").anns.values()]
    assert found == [[0, height / 2, width / 2, height / 2], [width / 4, 0, width / 2, height]]
    assert report.left_out["boxes without area"] == 1


def test_categories_do_not_depend_on_the_order_of_the_rows(truth: Truth, tmp_path: Path) -> None:
    exported(truth.results, "coco", tmp_path / "one", images=truth.images)
    truth.write(reversed(truth.lines()))
    exported(truth.results, "coco", tmp_path / "other", images=truth.images)
    one, other = (loaded(tmp_path / name / "instances.json").cats for name in ("one", "other"))
    assert one == other


@pytest.mark.parametrize("left", [0.1, 0.333333, 0.5, 0.99999])
def test_no_box_has_a_side_of_no_pixels(truth: Truth, tmp_path: Path, left: float) -> None:
    """Sides are written to a hundredth of a pixel: a box that is thinner has no area there, though it has one."""
    box = {"x_min": left, "y_min": 0.2, "x_max": left + 5e-6, "y_max": 0.6}
    truth.write([line(f"{BUCKET}/{p.name}.png", "detect", object="hair", objects=[box]) for p in truth.pictures])
    report = exported(truth.results, "coco", tmp_path / "coco", images=truth.images)
    annotations = json.loads((tmp_path / "coco" / "instances.json").read_text())["annotations"]
    assert all(min(annotation["bbox"][2:]) > 0 for annotation in annotations)
    assert report.left_out["boxes without area"] + len(annotations) == len(truth.pictures)
    assert report.left_out["boxes without area"]
