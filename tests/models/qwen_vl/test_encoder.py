"""Images by the graphs of their sizes against images without graphs."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from stoop_worker.images import Image, made_ready
from stoop_worker.models.families import load_model
from stoop_worker.models.loading.options import LoadOptions
from stoop_worker.models.qwen_vl.family import QwenVLFamily
from tests.engine.kept_work import KeptWork
from tests.support.tiny_decoder import write_qwen_vl


@pytest.fixture
def family(tmp_path: Path) -> QwenVLFamily:
    found = load_model(write_qwen_vl(tmp_path), LoadOptions(torch.device("cpu"), torch.float32))
    assert isinstance(found, QwenVLFamily)
    return found


def picture(seed: int, rows: int, columns: int, family: QwenVLFamily) -> Image:
    cell = family.spec.preparation.cell  # type: ignore[union-attr]
    pixels = np.random.default_rng(seed).integers(0, 256, (rows * cell, columns * cell, 3), dtype=np.uint8)
    return Image.of(pixels)


def encoded(family: QwenVLFamily, *images: Image) -> Tensor:
    cell = family.spec.preparation.cell  # type: ignore[union-attr]
    rows = sum(image.size[0] * image.size[1] // cell**2 for image in images)
    out_NC = torch.zeros(rows, family.spec.given_dim)
    family.encode(images, out_NC, lambda: None)
    return out_NC


def test_a_size_that_comes_again_is_captured_and_encodes_as_before(family: QwenVLFamily) -> None:
    images = [picture(1, 2, 3, family), picture(2, 3, 2, family), picture(3, 2, 3, family), picture(4, 2, 2, family)]
    expected = torch.cat([encoded(family, image) for image in images])

    graphs = KeptWork()
    family.capture(graphs, 0)
    for _ in range(3):
        torch.testing.assert_close(encoded(family, *images), expected, atol=1e-5, rtol=1e-5)
    height, width, _ = images[0].pixels.shape
    # in the first step only the size of two of its images, then all sizes
    assert graphs.replayed.count(("image", (height, width))) == 1 + 2 + 2
    assert len(graphs.kept) == 3


def test_an_image_that_the_device_resizes_is_the_one_that_pillow_resizes(family: QwenVLFamily) -> None:
    rule = family.spec.preparation
    photo = Image.of(np.random.default_rng(5).integers(0, 256, (300, 420, 3), dtype=np.uint8))
    resized, left = made_ready(photo, rule), made_ready(photo, rule, on_device=True)  # type: ignore[arg-type]
    assert isinstance(resized, Image) and isinstance(left, Image)
    assert left.pixels is photo.pixels and left.size == resized.size == resized.pixels.shape[:2]
    expected = encoded(family, resized)
    graphs = KeptWork()
    family.capture(graphs, 0)
    for _ in range(3):
        torch.testing.assert_close(encoded(family, left), expected, atol=1e-5, rtol=1e-5)
    assert len(graphs.replayed) == 2


def test_only_a_few_sizes_are_captured(family: QwenVLFamily) -> None:
    graphs = KeptWork()
    family.capture(graphs, 0)
    for columns in range(1, 21):
        for _ in range(2):
            encoded(family, picture(columns, 1, columns, family))
    assert len(graphs.kept) == 16
