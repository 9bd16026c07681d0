from dataclasses import replace

import numpy as np
import pytest

from stoop_worker.engine.model import RequestInvalid
from stoop_worker.engine.request import Caption, Detect, Point, Query, Refusal, Request, Task
from stoop_worker.images import Crops, Tiling
from stoop_worker.models.moondream.checks import check_task
from tests.engine.micro import MICRO, crops_of, media_of

CROPS = crops_of(0)
NAN = float("nan")


@pytest.mark.parametrize(
    ("task", "crops", "message"),
    [
        (Query(" \n"), CROPS, "question is empty"),
        (Query("\ud800"), CROPS, "question is not valid Unicode"),
        (Detect("a \udfff"), CROPS, "object is not valid Unicode"),
        (Query("?", spatial_refs=((0.1, 0.2),)), None, "need an image"),
        (Query("?", spatial_refs=((0.1, 0.2, 0.3),)), CROPS, "point .* or a box"),
        (Query("?", spatial_refs=((0.1, 1.2),)), CROPS, "from 0 to 1"),
        (Query("?", spatial_refs=((0.1, NAN),)), CROPS, "from 0 to 1"),
        (Query("?", spatial_refs=((0.5, 0.1, 0.4, 0.2),)), CROPS, "minimum is over"),
        (Caption("endless"), CROPS, "short, normal"),
        (Caption("short"), None, "caption needs an image"),
        (Detect("dog"), None, "detect needs an image"),
        (Point("dog"), None, "point needs an image"),
        (Detect(" "), CROPS, "object is empty"),
        (Point(""), CROPS, "object is empty"),
        (Point("dog", spatial_refs=((0.1, 1.2),)), CROPS, "from 0 to 1"),
    ],
)
def test_a_task_that_cannot_run_is_refused_with_advice(task: Task, crops: Crops | None, message: str) -> None:
    with pytest.raises(RequestInvalid, match=message) as caught:
        check_task(Request("a", task, media_of(crops)), MICRO)
    assert caught.value.refusal is Refusal.INVALID_ARGUMENT


def test_more_than_one_image_is_refused() -> None:
    with pytest.raises(RequestInvalid, match="takes one image, not 2"):
        check_task(Request("a", Caption("short"), (CROPS, CROPS)), MICRO)


@pytest.mark.parametrize(
    "crops",
    [
        replace(CROPS, tiling=Tiling(2, 2)),
        replace(CROPS, pixels=np.zeros((2, 12, 12, 3), dtype=np.uint8)),
        replace(CROPS, pixels=CROPS.pixels.astype(np.float32)),
    ],
)
def test_crops_of_another_geometry_are_refused(crops: Crops) -> None:
    with pytest.raises(RequestInvalid, match="takes crops of shape"):
        check_task(Request("a", Caption("short"), (crops,)), MICRO)


@pytest.mark.parametrize(
    ("task", "crops"),
    [
        (Query("?"), None),
        (Query("?", reasoning=True, spatial_refs=((0, 1), (0.2, 0.2, 0.2, 0.9))), CROPS),
        (Caption("short"), CROPS),
        (Detect("dog"), CROPS),
        (Point("dog"), CROPS),
    ],
)
def test_a_good_request_passes(task: Task, crops: Crops | None) -> None:
    check_task(Request("a", task, media_of(crops)), MICRO)
