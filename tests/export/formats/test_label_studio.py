import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import jsonschema

from tests.export.truth import BUCKET, Truth, close, exported, line

PERCENT = {"type": "number", "minimum": 0, "maximum": 100}
# what Label Studio's pages on pre-annotations and on its tags say of a task and of each kind of result
RESULT: dict[str, Any] = {
    "type": "object",
    "required": ["id", "type", "from_name", "to_name", "value"],
    "properties": {
        "id": {"type": "string", "minLength": 1},
        "type": {"enum": ["rectanglelabels", "keypointlabels", "textarea"]},
        "original_width": {"type": "integer", "minimum": 1},
        "original_height": {"type": "integer", "minimum": 1},
        "image_rotation": {"const": 0},
    },
    "allOf": [
        {
            "if": {"properties": {"type": {"const": kind}}},
            "then": {
                "required": outer,
                "properties": {"value": {"required": list(value), "properties": value, "additionalProperties": False}},
            },
        }
        for kind, outer, value in (
            (
                "rectanglelabels",
                ["original_width", "original_height", "image_rotation"],
                {
                    **dict.fromkeys(("x", "y", "width", "height"), PERCENT),
                    "rotation": {"type": "number"},
                    "rectanglelabels": {"type": "array", "items": {"type": "string"}, "minItems": 1},
                },
            ),
            (
                "keypointlabels",
                ["original_width", "original_height", "image_rotation"],
                {
                    **dict.fromkeys(("x", "y", "width"), PERCENT),
                    "keypointlabels": {"type": "array", "items": {"type": "string"}, "minItems": 1},
                },
            ),
            ("textarea", [], {"text": {"type": "array", "items": {"type": "string"}}}),
        )
    ],
}
TASKS: dict[str, Any] = {
    "type": "array",
    "items": {
        "type": "object",
        "required": ["data", "predictions"],
        "properties": {
            "data": {"type": "object", "required": ["image"], "properties": {"image": {"type": "string"}}},
            "predictions": {
                "type": "array",
                "items": {
                    "type": "object",
                    "required": ["result"],
                    "properties": {
                        "model_version": {"type": "string"},
                        "score": {"type": "number"},
                        "result": {"type": "array", "items": RESULT},
                    },
                    "additionalProperties": False,
                },
            },
        },
    },
}


def loaded(path: Path) -> list[dict[str, Any]]:
    tasks = json.loads(path.read_text(encoding="utf-8"))
    jsonschema.validate(tasks, TASKS)
    ids = [each["id"] for task in tasks for each in results(task)]
    assert len(ids) == len(set(ids)), "results have ids of their own"
    return list(tasks)


def results(task: dict[str, Any], kind: str = "") -> list[dict[str, Any]]:
    return [each for prediction in task["predictions"] for each in prediction["result"] if kind in each["type"]]


def name(task: dict[str, Any]) -> str:
    return str(task["data"]["image"].rpartition("/")[2])


def test_boxes_come_back_where_they_were(truth: Truth, tmp_path: Path) -> None:
    exported(truth.results, "label-studio", tmp_path / "ls", images=truth.images)
    tasks = loaded(tmp_path / "ls" / "tasks.json")
    assert [task["data"]["image"] for task in tasks] == [f"{BUCKET}/{p.name}.png" for p in truth.pictures]
    for task in tasks:
        found = results(task, "rectanglelabels")
        back = sorted((each["value"]["rectanglelabels"][0], pixels(each)) for each in found)
        boxes = truth.boxes()[name(task)]
        assert [label for label, _ in back] == [label for label, _ in boxes]
        assert all(close(one, other, 0.02) for (_, one), (_, other) in zip(back, boxes, strict=True))


def test_points_come_back_where_they_were(truth: Truth, tmp_path: Path) -> None:
    exported(truth.results, "label-studio", tmp_path / "ls.json", images=truth.images)
    for task in loaded(tmp_path / "ls.json"):
        found = results(task, "keypointlabels")
        back = sorted((each["value"]["keypointlabels"][0], pixels(each)[:2]) for each in found)
        points = truth.points()[name(task)]
        assert [label for label, _ in back] == [label for label, _ in points]
        assert all(close(one, other, 0.02) for (_, one), (_, other) in zip(back, points, strict=True))


def test_texts_are_areas_and_the_question_is_a_note(truth: Truth, tmp_path: Path) -> None:
    exported(truth.results, "label-studio", tmp_path / "ls.json", images=truth.images)
    [caption, answer] = results(loaded(tmp_path / "ls.json")[0], "textarea")
    assert (caption["from_name"], caption["value"]) == ("caption", {"text": ["shapes-1 of shapes"]})
    assert (answer["from_name"], answer["value"]) == ("answer", {"text": ["some"]})
    assert answer["meta"] == {"text": ["how many?"]}


def test_the_configuration_has_every_control_and_label_of_the_tasks(truth: Truth, tmp_path: Path) -> None:
    hostile = '<Label value="x"/>&"'
    truth.write([*truth.lines(), line(f"{BUCKET}/shapes-1.png", "detect", object=hostile, objects=[])])
    exported(truth.results, "label-studio", tmp_path / "ls", images=truth.images)
    view = ElementTree.parse(tmp_path / "ls" / "labeling.xml").getroot()  # our own file
    image = view.find("Image")
    assert image is not None
    assert (image.get("name"), image.get("value")) == ("image", "$image")
    controls = {each.get("name"): each for each in view if each.tag != "Image"}
    assert {each.get("toName") for each in controls.values()} == {"image"}
    labels = {control: {each.get("value") for each in tag} for control, tag in controls.items()}
    assert hostile in labels["box"]
    for task in loaded(tmp_path / "ls" / "tasks.json"):
        for each in results(task):
            assert controls[each["from_name"]].tag.lower() == each["type"]
            assert set(each["value"].get(each["type"], [])) <= labels[each["from_name"]]


def test_a_local_image_is_served_as_a_local_file(truth: Truth, tmp_path: Path) -> None:
    path = truth.images / "a b.png"
    path.write_bytes(truth.pictures[0].encoded)
    truth.write([line(str(path), "caption", caption="x")])
    exported(truth.results, "label-studio", tmp_path / "ls.json", images=truth.images)
    assert loaded(tmp_path / "ls.json")[0]["data"]["image"] == "/data/local-files/?d=a%20b.png"


def test_sizes_are_not_needed(truth: Truth, tmp_path: Path) -> None:
    truth.write([line("https://example.org/a.jpg?token=1", "detect", object="x", objects=[])])
    exported(truth.results, "label-studio", tmp_path / "ls.json")
    assert loaded(tmp_path / "ls.json")[0]["data"]["image"] == "https://example.org/a.jpg?token=1"


def pixels(result: dict[str, Any]) -> tuple[float, ...]:
    value, width, height = result["value"], result["original_width"] / 100, result["original_height"] / 100
    right, bottom = value["x"] + value.get("width", 0), value["y"] + value.get("height", 0)
    return value["x"] * width, value["y"] * height, right * width, bottom * height
