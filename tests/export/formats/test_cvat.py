from pathlib import Path
from xml.etree import ElementTree

from tests.export.truth import BUCKET, Truth, close, exported, line


def loaded(path: Path) -> ElementTree.Element:
    root = ElementTree.parse(path).getroot()  # our own file
    assert (root.tag, root.findtext("version")) == ("annotations", "1.1")
    images = root.findall("image")
    assert root.findtext("meta/task/size") == str(len(images))
    assert [image.get("id") for image in images] == [str(number) for number in range(len(images))]
    known = {
        label.findtext("name"): {each.findtext("name") for each in label.findall("attributes/attribute")}
        for label in root.findall("meta/task/labels/label")
    }
    for shape in root.findall("image/*"):
        attributes = {each.get("name") for each in shape.findall("attribute")}
        assert attributes <= known[shape.get("label")], "labels and their attributes are declared"
    return root


def number(shape: ElementTree.Element, *names: str) -> tuple[float, ...]:
    return tuple(float(shape.get(name, "")) for name in names)


def test_boxes_come_back_where_they_were(truth: Truth, tmp_path: Path) -> None:
    exported(truth.results, "cvat", tmp_path / "cvat.xml", images=truth.images)
    for image in loaded(tmp_path / "cvat.xml").findall("image"):
        name = image.get("name", "")
        assert (int(image.get("width", 0)), int(image.get("height", 0))) == truth.sizes()[name]
        back = sorted((b.get("label"), number(b, "xtl", "ytl", "xbr", "ybr")) for b in image.findall("box"))
        boxes = truth.boxes()[name]
        assert [label for label, _ in back] == [label for label, _ in boxes]
        assert all(close(one, other, 0.02) for (_, one), (_, other) in zip(back, boxes, strict=True))


def test_points_come_back_where_they_were(truth: Truth, tmp_path: Path) -> None:
    exported(truth.results, "cvat", tmp_path / "cvat.xml", images=truth.images)
    for image in loaded(tmp_path / "cvat.xml").findall("image"):
        back = sorted(
            (p.get("label"), tuple(map(float, p.get("points", "").split(",")))) for p in image.findall("points")
        )
        points = truth.points()[image.get("name", "")]
        assert [label for label, _ in back] == [label for label, _ in points]
        assert all(close(one, other, 0.02) for (_, one), (_, other) in zip(back, points, strict=True))


def test_texts_are_tags_with_attributes(truth: Truth, tmp_path: Path) -> None:
    exported(truth.results, "cvat", tmp_path / "cvat.xml", images=truth.images)
    [caption, answer] = loaded(tmp_path / "cvat.xml").findall("image[@id='0']/tag")
    assert (caption.get("label"), caption.findtext("attribute[@name='text']")) == ("caption", "shapes-1 of shapes")
    assert answer.findtext("attribute[@name='question']") == "how many?"
    assert answer.findtext("attribute[@name='text']") == "some"


def test_no_text_can_end_the_file(truth: Truth, tmp_path: Path) -> None:
    hostile = "]]></annotations><!-- \x00\x1b\ufffe & \"'"
    image = f"{BUCKET}/shapes-1.png"
    truth.write(
        [
            line(image, "caption", caption=hostile),
            line(image, "query", question=hostile, answer=hostile),
            line(image, "detect", object=hostile, objects=[{"x_min": 0.0, "y_min": 0.0, "x_max": 1.0, "y_max": 1.0}]),
        ]
    )
    exported(truth.results, "cvat", tmp_path / "cvat.xml", images=truth.images)
    [image_tag] = loaded(tmp_path / "cvat.xml").findall("image")
    assert image_tag.findtext("tag/attribute") == "]]></annotations><!-- \ufffd\ufffd\ufffd & \"'"
    assert [shape.get("label") for shape in image_tag.findall("box")] == ["]]></annotations><!-- & \"'"]
