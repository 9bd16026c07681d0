"""Turns a chat with images into inputs, and their positions on three axes: time, height and width."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from stoop_worker.engine.inputs import Input, MediaInput, token_input
from stoop_worker.engine.media import whole_images_of
from stoop_worker.engine.model import RequestInvalid
from stoop_worker.engine.positions import Positions
from stoop_worker.engine.request import Chat, Media, Part
from stoop_worker.images import Image, Jpeg, PatchRule

__all__ = ["lay_out", "messages_of", "positions_of"]

_COST = 192
"""Embeddings that take about as much work as a crop of Moondream's, the unit of the encoder's budget."""


def messages_of(chat: Chat) -> list[dict[str, Any]]:
    """Return the messages as the template takes them."""
    return [{"role": message.role, "content": _content(message.content)} for message in chat.messages]


def _content(content: tuple[str | Part, ...]) -> str | list[dict[str, Any]]:
    if len(content) == 1 and isinstance(content[0], str):
        return content[0]
    return [{"type": "image"} if part is Part.IMAGE else {"type": "text", "text": part} for part in content]


def lay_out(ids: Sequence[int], media: Iterable[Media], image_id: int, rule: PatchRule) -> list[Input]:
    """Put an image in the place of each `image_id`; raises `RequestInvalid` if the numbers of both differ, or if no
    token follows the last image.
    """
    left = iter(media)
    inputs: list[Input] = []
    for token in ids:
        if token != image_id:
            inputs.append(token_input(token))
            continue
        image = next(left, None)
        if image is None:
            raise RequestInvalid("the model's chat template shows more images than there are")
        inputs.append(_input(image, rule))
    if next(left, None) is not None:
        raise RequestInvalid("the model's chat template leaves images out: put them into messages of the user")
    if isinstance(inputs[-1], MediaInput):
        raise RequestInvalid("the model's chat template ends with an image: put a text after the image")
    return inputs


def _input(image: Media, rule: PatchRule) -> MediaInput:
    if not isinstance(image, Image | Jpeg) or any(side % rule.cell or side < rule.cell for side in image.size):
        raise RequestInvalid(f"this model takes whole images whose sides are multiples of {rule.cell} pixels")
    height, width = image.size
    count = rule.width_of(height, width)
    # jobs may see one image in different sizes, which may have as many embeddings
    digest = image.digest + height.to_bytes(4, "little") + width.to_bytes(4, "little")
    return MediaInput(digest, count, cost=-(-count // _COST))


def positions_of(inputs: Sequence[Input], media: Sequence[Media], rule: PatchRule) -> Positions:
    """Number the positions: each token is one step further on every axis; an image spreads over height and width. The
    text after an image begins after its longer side.
    """
    left = iter(whole_images_of(media))
    places: list[npt.NDArray[np.int64]] = []
    following = 0
    for fed in inputs:
        if not isinstance(fed, MediaInput):
            places.append(np.full((1, 3), following, dtype=np.int64))
            following += 1
            continue
        height, width = next(left).size
        rows, columns = height // rule.cell, width // rule.cell
        cells = np.indices((1, rows, columns), dtype=np.int64).reshape(3, -1).T
        places.append(cells + following)
        following += max(rows, columns)
    prompt = np.concatenate(places)
    return Positions(prompt, delta=following - len(prompt))
