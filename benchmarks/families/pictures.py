"""The workloads of models that see: a photo of 850 x 600, with answers of 3 and of 30 tokens."""

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import count, islice
from typing import Final

import torch
from torch import Tensor

from benchmarks.engine.check import Checked
from benchmarks.engine.engine_run import EngineRun
from benchmarks.engine.photo_requests import PhotoRequests
from benchmarks.engine.photos import LARGE, SMALL, Format, Photos, make_photos
from benchmarks.engine.workloads import Ask
from benchmarks.families.chats import closed
from benchmarks.families.check import TOKENS, check_texts
from benchmarks.families.figure import Figure
from benchmarks.families.opened import Opened
from stoop_worker.engine.encoder import Encoder
from stoop_worker.engine.request import Chat, Message, Part, Request, images_of
from stoop_worker.images import PatchRule, Preparation

__all__ = ["WORKLOADS", "check"]

_PATCH, _MERGE = 16, 2
_CHECKED: Final = 4
_MOST_PHOTOS: Final = 256  # further questions reuse them, as other photos


def check(opened: Opened) -> Checked:
    """Check the answers to questions about small photos."""
    photos = PhotoRequests(_preparation(opened), _photos(opened, SMALL, _CHECKED))
    asks = islice(_questions(SMALL, TOKENS), _CHECKED)
    requests = [photos.request_of(f"check-{number}", ask) for number, ask in enumerate(asks)]
    image_id, device = opened.document["image_token_id"], opened.reference.device
    return check_texts(opened, requests, media_id=image_id, given=lambda request: _given(request, device))


def direct(opened: Opened) -> list[Figure]:
    """Time answers of 3 tokens."""
    return _answers(opened, 3)


def long(opened: Opened) -> list[Figure]:
    """Time answers of 30 tokens."""
    return _answers(opened, 30)


WORKLOADS: Final[Mapping[str, Callable[[Opened], list[Figure]]]] = {"photo-3": direct, "photo-30": long}


def _answers(opened: Opened, tokens: int) -> list[Figure]:
    shape = SMALL if opened.is_tiny else LARGE
    wanted = max(opened.loads) + sum(opened.arguments.requests + 3 * load for load in opened.loads)
    # one for each of a worker's loading threads; on a CPU they would only share its few cores
    on_device = opened.arguments.device == "cuda"
    processes = min(8, os.cpu_count() or 1) if on_device else 0
    photos = _photos(opened, shape, min(wanted, _MOST_PHOTOS))
    requests = PhotoRequests(_preparation(opened), photos, on_device=on_device, processes=processes)
    with EngineRun(opened.engine, partial(_request, requests), on_exit=requests.close) as running:
        return closed(opened, running, f"photo-{tokens}", _questions(shape, tokens, first=10_000 * tokens))


def _request(photos: PhotoRequests, name: str, ask: Ask) -> Request:
    """Return a question about a photo that the cache does not know, although its pixels may be another one's."""
    request = photos.request_of(name, ask)
    images = images_of(request.media)
    return replace(request, media=tuple(replace(each, digest=b"%d %s" % (ask.photo, each.digest)) for each in images))


def _questions(shape: Format, tokens: int, first: int = 0) -> Iterator[Ask]:
    for number in count(first):
        chat = Chat((Message("user", (Part.IMAGE, f"What is no. {number}?")),))
        yield Ask(chat, photo=number, shape=shape, tokens=tokens)


def _photos(opened: Opened, shape: Format, count: int) -> Photos:
    return {shape: make_photos(count, shape, opened.arguments.photos)}


def _preparation(opened: Opened) -> Preparation:
    assert not isinstance(opened.model, Encoder)
    rule = opened.model.spec.preparation
    assert isinstance(rule, PatchRule)
    return rule


def _given(request: Request, device: torch.device) -> dict[str, Tensor]:
    """Return the patches of a request's images, and their grids, as transformers takes them."""
    pixels = [torch.from_numpy(image.pixels) for image in images_of(request.media)]
    grids = [[1, len(each) // _PATCH, each.shape[1] // _PATCH] for each in pixels]
    patches = torch.cat([_patches(each) for each in pixels])
    return {"pixel_values": patches.to(device), "image_grid_thw": torch.tensor(grids, device=device)}


def _patches(pixels_HWC: Tensor) -> Tensor:
    """Return the patches of one image: those of a merged cell follow each other, and both frames are the same."""
    cell = _PATCH * _MERGE
    rows, columns = pixels_HWC.shape[0] // cell, pixels_HWC.shape[1] // cell
    values = (pixels_HWC.float() / 127.5 - 1).view(rows, _MERGE, _PATCH, columns, _MERGE, _PATCH, 3)
    ordered = values.permute(0, 3, 1, 4, 6, 2, 5).reshape(-1, 3, 1, _PATCH, _PATCH)
    return ordered.expand(-1, -1, 2, -1, -1).flatten(1)
