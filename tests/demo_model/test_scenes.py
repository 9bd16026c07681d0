import numpy as np
import pytest

from deploy.demo_model.pictures.drawing import draw, encode
from deploy.demo_model.pictures.scenes import COLOURS, scene
from deploy.demo_model.pictures.shapes import KINDS, aspect, distance
from stoop_worker.images import CropGeometry, ImageLimits, cut, load, select_tiling


@pytest.mark.parametrize("many_crops", [False, True])
def test_a_seed_gives_one_scene_that_needs_the_crops_asked_for(many_crops: bool) -> None:
    for seed in range(40):
        shown = scene(seed, many_crops=many_crops)
        assert shown == scene(seed, many_crops=many_crops)
        assert shown.things
        assert (select_tiling(shown.height, shown.width, CropGeometry()).count > 1) == many_crops
    assert scene(0, many_crops=many_crops) != scene(1, many_crops=many_crops)


SCENE_7 = (
    298,
    360,
    [
        ("square", "green", 0.108987, 0.310603),
        ("square", "green", 0.303263, 0.246477),
        ("cross", "yellow", 0.327755, 0.359232),
        ("square", "green", 0.609667, 0.616603),
        ("cross", "yellow", 0.63747, 0.938893),
        ("cross", "yellow", 0.685103, 0.496758),
    ],
)


def test_a_scene_is_the_same_on_every_machine() -> None:
    first = scene(7, many_crops=False)
    things = [(thing.kind, thing.colour, round(thing.x, 6), round(thing.y, 6)) for thing in first.things]
    assert (first.width, first.height, things) == SCENE_7


def test_things_go_from_left_to_right_inside_the_image_and_stay_visible() -> None:
    for seed in range(60):
        things = scene(seed, many_crops=bool(seed % 2)).things
        centres = [thing.x for thing in things]
        assert centres == sorted(centres)
        for thing in things:
            left, top, right, bottom = thing.box
            assert left > 0 and top > 0 and right < 1 and bottom < 1
        for one in things:
            for other in things:
                if one is not other:
                    across = max(0.0, min(one.box[2], other.box[2]) - max(one.box[0], other.box[0]))
                    along = max(0.0, min(one.box[3], other.box[3]) - max(one.box[1], other.box[1]))
                    assert across * along <= 0.121 * min(one.w * one.h, other.w * other.h)


def test_a_shape_is_painted_in_its_colour_inside_its_box() -> None:
    shown = next(s for seed in range(99) if len((s := scene(seed, many_crops=False)).things) == 1)
    (thing,) = shown.things
    pixels = draw(shown).astype(int)
    painted = np.abs(pixels - np.array(COLOURS[thing.colour])).max(-1) < 40
    rows, columns = np.nonzero(painted)
    left, top, right, bottom = thing.box
    found = (
        columns.min() / shown.width,
        rows.min() / shown.height,
        (columns.max() + 1) / shown.width,
        (rows.max() + 1) / shown.height,
    )
    assert found == pytest.approx((left, top, right, bottom), abs=2 / min(shown.width, shown.height))


@pytest.mark.parametrize("kind", KINDS)
def test_a_figure_fills_its_box(kind: str) -> None:
    line = np.linspace(-1.2, 1.2, 481, dtype=np.float32)
    u, v = np.meshgrid(line, line)
    rows, columns = np.nonzero(distance(kind, u, v) <= 0)
    assert line[columns.max()] == pytest.approx(aspect(kind), abs=0.02)
    assert line[columns.min()] == pytest.approx(-aspect(kind), abs=0.02)
    assert line[rows.max()] == pytest.approx(1, abs=0.02)
    assert line[rows.min()] == pytest.approx(-1, abs=0.02)


def test_an_encoded_scene_goes_through_the_worker_s_own_pipeline() -> None:
    shown = scene(3, many_crops=True)
    crops = cut(load(encode(shown), ImageLimits()), CropGeometry())
    assert len(crops.pixels) == 1 + shown.crops
