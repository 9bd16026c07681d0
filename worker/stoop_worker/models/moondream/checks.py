"""Checks that Moondream can do a task."""

import numpy as np

from stoop_worker.engine.model import RequestInvalid
from stoop_worker.engine.request import Caption, Detect, Gaze, Point, Query, Request, SpatialRef
from stoop_worker.images import Crops
from stoop_worker.images.tiling import CropGeometry
from stoop_worker.models.moondream.config import ModelConfig

__all__ = ["check_task"]


def check_task(request: Request, config: ModelConfig) -> None:
    """Raise a `RequestInvalid` that names the change to make if the model cannot do the task with these images."""
    task = request.task
    if len(request.media) > 1:
        raise RequestInvalid(f"this model takes one image, not {len(request.media)}")
    if isinstance(task, Query):
        _check_query(task, has_image=bool(request.media))
    elif not request.media:
        raise RequestInvalid(f"{type(task).__name__.lower()} needs an image")
    elif isinstance(task, Caption):
        _check_length(task, config)
    elif isinstance(task, Gaze):
        _check_eye(task)
    else:
        assert isinstance(task, Detect | Point), "a chat is a query by now, and other tasks were refused"
        _check_text(task.object, "object")
        for ref in task.spatial_refs if isinstance(task, Point) else ():
            _check_ref(ref)
    for image in request.media:
        if isinstance(image, Crops):
            _check_crops(image, config.vision.geometry)


def _check_text(text: str, name: str) -> None:
    if not text.strip():
        raise RequestInvalid(f"the {name} is empty")
    try:
        text.encode()
    except UnicodeEncodeError as error:  # half a surrogate pair, which no tokenizer accepts
        raise RequestInvalid(f"the {name} is not valid Unicode") from error


def _check_query(task: Query, *, has_image: bool) -> None:
    _check_text(task.question, "question")
    if task.spatial_refs and not has_image:
        raise RequestInvalid("spatial_refs need an image")
    for ref in task.spatial_refs:
        _check_ref(ref)


def _check_ref(ref: SpatialRef) -> None:
    if len(ref) not in (2, 4):
        raise RequestInvalid("a spatial reference is a point (x, y) or a box (x_min, y_min, x_max, y_max)")
    if not all(0 <= value <= 1 for value in ref):
        raise RequestInvalid("a spatial reference is in fractions of the image, from 0 to 1")
    if len(ref) == 4 and (ref[0] > ref[2] or ref[1] > ref[3]):
        raise RequestInvalid("a box is (x_min, y_min, x_max, y_max): its minimum is over its maximum")


def _check_eye(task: Gaze) -> None:
    if len(task.eye) != 2 or not all(0 <= value <= 1 for value in task.eye):
        raise RequestInvalid("the eye is a point (x, y) in fractions of the image, from 0 to 1")


def _check_length(task: Caption, config: ModelConfig) -> None:
    known = config.tokenizer.templates.caption
    if task.length not in known:
        raise RequestInvalid(f"caption length must be one of {', '.join(known)}")


def _check_crops(crops: Crops, geometry: CropGeometry) -> None:
    side = geometry.crop_size
    shape = (1 + crops.tiling.count, side, side, 3)
    if crops.pixels.shape != shape or crops.pixels.dtype != np.uint8:
        raise RequestInvalid(f"this model takes crops of shape {shape} uint8, not {crops.pixels.shape}")
