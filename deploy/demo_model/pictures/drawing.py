"""Draws a scene as pixels, and encodes it as a file."""

import io
from math import ceil, floor

import numpy as np
import numpy.typing as npt
from PIL import Image as Pillow

from deploy.demo_model.pictures.scenes import Background, Scene, Thing
from deploy.demo_model.pictures.shapes import distance

__all__ = ["draw", "encode"]


def draw(scene: Scene) -> npt.NDArray[np.uint8]:
    """Return the scene's pixels (height, width, 3) uint8; a thing covers those to its left."""
    canvas = _background(scene.background, scene.width, scene.height)
    for thing in scene.things:
        _paint(canvas, thing)
    if scene.background.grain:
        noise = np.random.default_rng(scene.seed).standard_normal(canvas.shape, dtype=np.float32)
        canvas += noise * np.float32(scene.background.grain)
    return np.clip(np.rint(canvas), 0, 255).astype(np.uint8)


def encode(scene: Scene) -> bytes:
    """Return the scene as the bytes of a JPEG or PNG file."""
    image, file = Pillow.fromarray(draw(scene)), io.BytesIO()
    if scene.background.quality is None:
        image.save(file, "PNG", compress_level=1)
    else:
        image.save(file, "JPEG", quality=scene.background.quality)
    return file.getvalue()


def _background(background: Background, width: int, height: int) -> npt.NDArray[np.float32]:
    start, end = np.array([background.start, background.end], dtype=np.float32)
    count = height if background.downwards else width
    share = ((np.arange(count, dtype=np.float32) + 0.5) / count)[:, None]
    line = start + (end - start) * share
    line = line[:, None] if background.downwards else line[None, :]
    return np.broadcast_to(line, (height, width, 3)).astype(np.float32)


def _paint(canvas: npt.NDArray[np.float32], thing: Thing) -> None:
    height, width, _ = canvas.shape
    half = thing.h * height / 2
    left, top, right, bottom = thing.box
    columns = np.arange(max(0, floor(left * width) - 1), min(width, ceil(right * width) + 1))
    rows = np.arange(max(0, floor(top * height) - 1), min(height, ceil(bottom * height) + 1))
    u = ((columns.astype(np.float32) + 0.5 - thing.x * width) / half).astype(np.float32)[None, :]
    v = ((rows.astype(np.float32) + 0.5 - thing.y * height) / half).astype(np.float32)[:, None]
    cover = np.clip(0.5 - distance(thing.kind, *np.broadcast_arrays(u, v)) * half, 0, 1)[..., None]
    window = canvas[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
    window += (np.array(thing.rgb, dtype=np.float32) - window) * cover.astype(np.float32)
