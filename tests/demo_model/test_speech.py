from collections import Counter
from random import Random

from deploy.demo_model.exam import Ask, Marks
from deploy.demo_model.pictures.scenes import Background, Scene, Thing, scene
from deploy.demo_model.pictures.speech import ANYTHING, Label, captions, questions

GREY = Background((200, 200, 200), (200, 200, 200), True, 0.0, None)


def _thing(kind: str, colour: str, x: float, y: float, size: float = 0.1) -> Thing:
    return Thing(kind, colour, (0, 0, 0), x, y, size, size)


SHOWN = Scene(
    0,
    300,
    300,
    GREY,
    (
        _thing("circle", "red", 0.1, 0.1),
        _thing("cross", "orange", 0.3, 0.5, 0.2),
        _thing("7", "blue", 0.5, 0.5),
        _thing("circle", "red", 0.9, 0.9),
    ),
)


def test_captions_name_every_thing_from_left_to_right() -> None:
    assert captions(SHOWN) == {
        "short": "2 red circles, an orange cross and a blue 7.",
        "normal": "From left to right: a red circle, an orange cross, a blue 7 and a red circle.",
        "long": "4 objects on a light background. A red circle at the top left, an orange cross on the left, "
        "a blue 7 in the centre and a red circle at the bottom right.",
    }


def test_questions_have_the_answers_that_the_scene_gives() -> None:
    seen = Counter[str]()
    for seed in range(300):
        for question in questions(SHOWN, Random(seed)):
            seen[question.kind] += 1
            match question.kind:
                case "digit":
                    assert question.answer == "7"
                case "colour":
                    assert (
                        question.answer == {"cross": "orange", "digit": "blue"}[question.text.rstrip("?").split()[-1]]
                    )
                case "which":
                    assert question.answer == "the orange cross"
                case "count" if "red objects" in question.text or "red circles" in question.text:
                    assert question.answer == "2"
                case "where":
                    assert question.answer in ("centre", "left")
    assert {"count", "is there", "colour", "shape", "which", "digit"} <= set(seen)


def test_a_label_selects_the_shapes_that_it_names() -> None:
    assert len(ANYTHING.among(SHOWN.things)) == 4
    assert len(Label("red", "circle").among(SHOWN.things)) == 2
    assert Label(None, "digit").among(SHOWN.things) == (SHOWN.things[2],)
    assert Label("red", "cross").text(plural=True) == "red crosses"


def test_the_truth_gets_full_marks_and_anything_else_does_not() -> None:
    marks = Marks()
    for seed in range(30):
        shown = scene(seed, many_crops=False)
        for length, caption in captions(shown).items():
            assert marks.mark(Ask("caption", f"caption {length}", length), shown, caption)
        boxes = [thing.box for thing in shown.things]
        assert marks.mark(Ask("detect", "detect", "objects", label=ANYTHING), shown, boxes)
        assert marks.mark(Ask("point", "point", "objects", label=ANYTHING), shown, [(t.x, t.y) for t in shown.things])
        assert not marks.mark(Ask("detect", "spoilt", "objects", label=ANYTHING), shown, boxes[1:])
        assert not marks.mark(
            Ask("caption", "wrong", "normal"), shown, captions(shown)["normal"].replace("a", "an 9 a", 1) + " a red 9"
        )
    table = marks.table()
    assert table["detect F1 at IoU 0.75"] == table["point F1 inside"] == table["caption long exact"] == 1
    assert table["spoilt exact"] == table["wrong exact"] == 0


def test_a_box_that_is_half_off_matches_at_half_but_not_at_three_quarters() -> None:
    marks = Marks()
    x, y, w, h = SHOWN.things[1].x, SHOWN.things[1].y, 0.2, 0.2
    shifted = [(x - w / 2 + 0.04, y - h / 2, x + w / 2 + 0.04, y + h / 2)]
    assert marks.mark(Ask("detect", "detect", "cross", label=Label(None, "cross")), SHOWN, shifted)
    assert marks.table()["detect F1 at IoU 0.5"] == 1
    assert marks.table()["detect F1 at IoU 0.75"] == 0
