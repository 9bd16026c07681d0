"""What a request must be for the engine to run it; what is not fails alone."""

import math

import numpy as np

from worker.engine.request import Caption, Query, Refusal, Request, Sampling, SpatialRef
from worker.images import Crops
from worker.images.tiling import CropGeometry
from worker.model.config import ModelConfig

__all__ = ["RequestInvalid", "check_request"]


class RequestInvalid(Exception):
    """The engine will not run this request, and no other is touched by that."""

    def __init__(self, message: str, refusal: Refusal = Refusal.INVALID_ARGUMENT) -> None:
        super().__init__(message)
        self.refusal = refusal


def check_request(request: Request, config: ModelConfig) -> None:
    """Raise `RequestInvalid`, saying what to change, unless the request can be run."""
    _check_sampling(request.sampling)
    task = request.task
    if isinstance(task, Query):
        _check_query(task, has_image=request.image is not None)
    elif request.image is None:
        raise RequestInvalid(f"{type(task).__name__.lower()} needs an image")
    elif isinstance(task, Caption):
        _check_length(task, config)
    else:
        _check_text(task.object, "object")
    if isinstance(request.image, Crops):
        _check_crops(request.image, config.vision.geometry)


def _check_sampling(sampling: Sampling) -> None:
    if not (math.isfinite(sampling.temperature) and sampling.temperature >= 0):
        raise RequestInvalid("temperature must be 0 or more")
    if not 0 <= sampling.top_p <= 1:
        raise RequestInvalid("top_p must be from 0 to 1")
    if sampling.max_tokens < 1:
        raise RequestInvalid("max_tokens must be 1 or more")
    if sampling.max_objects < 1:
        raise RequestInvalid("max_objects must be 1 or more")


def _check_text(text: str, name: str) -> None:
    if not text.strip():
        raise RequestInvalid(f"the {name} is empty")
    try:
        text.encode()
    except UnicodeEncodeError as error:  # half a surrogate pair, which no tokenizer takes
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


def _check_length(task: Caption, config: ModelConfig) -> None:
    known = config.tokenizer.templates.caption
    if task.length not in known:
        raise RequestInvalid(f"caption length must be one of {', '.join(known)}")


def _check_crops(crops: Crops, geometry: CropGeometry) -> None:
    side = geometry.crop_size
    shape = (1 + crops.tiling.count, side, side, 3)
    if crops.pixels.shape != shape or crops.pixels.dtype != np.uint8:
        raise RequestInvalid(f"this model takes crops of shape {shape} uint8, not {crops.pixels.shape}")
