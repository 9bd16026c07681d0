from dataclasses import replace

import numpy as np
import pytest
import torch

from deploy.demo_model.dense_vision import project
from stoop_worker.images import Crops, cut
from stoop_worker.kernels.stitch_pool.reference import stitch_pool
from stoop_worker.models.moondream import vision
from stoop_worker.models.moondream.model import Moondream
from tests.engine.micro import MICRO, crops_of, micro_tensors, micro_tokenizer
from tests.support.encoded import encode_images
from tests.support.golden_image import golden_image
from tests.support.tiny_model import tiny_moondream

MODEL = tiny_moondream(torch.float64)
WEIGHTS, CONFIG = MODEL.weights.vision, MODEL.config.vision


def crops(width: int, height: int) -> Crops:
    return cut(golden_image(width, height), CONFIG.geometry)


def encode(*images: Crops) -> list[torch.Tensor]:
    with torch.inference_mode():
        return encode_images(MODEL, images)


def test_a_batch_of_images_equals_each_image_alone() -> None:
    images = [crops(300, 200), crops(379, 2000), crops(200, 300)]
    together = encode(*images)
    assert [tuple(found.shape) for found in together] == [(729, 128)] * 3
    for image, found in zip(images, together, strict=True):
        torch.testing.assert_close(found, encode(image)[0])


def test_many_crops_are_encoded_few_at_a_time_and_each_block_is_reported() -> None:
    calls: list[int] = []
    image = crops(379, 2000)
    pixels_NHWC = torch.from_numpy(np.concatenate([image.pixels] * 3))
    with torch.inference_mode():
        found = vision.features(
            pixels_NHWC, WEIGHTS, CONFIG, dtype=torch.float64, after_block=lambda: calls.append(len(calls))
        )
        alone = vision.features(pixels_NHWC[:7], WEIGHTS, CONFIG, dtype=torch.float64)
    assert len(pixels_NHWC) == 21 and len(calls) == 2 * CONFIG.enc_n_layers
    torch.testing.assert_close(found, alone.repeat(3, 1, 1))


@pytest.mark.parametrize(("size", "count"), [((300, 200), 1), ((640, 480), 9)])
def test_an_image_of_one_tile_is_encoded_once(size: tuple[int, int], count: int) -> None:
    assert vision.crops_to_encode(crops(*size), CONFIG) == count


def test_encoding_once_changes_nothing() -> None:
    image = crops(300, 200)
    with torch.inference_mode():
        features = vision.features(torch.from_numpy(image.pixels), WEIGHTS, CONFIG, dtype=torch.float64)
        local = stitch_pool(features[1:], rows=1, cols=1, margin=CONFIG.overlap_margin)
        torch.testing.assert_close(encode(image)[0], project(features[0], local, WEIGHTS))


def test_local_crops_matter_where_they_lie() -> None:
    image = crops(379, 2000)
    swapped = Crops(image.pixels[[0, 2, 1, *range(3, 7)]], image.tiling, image.digest)
    found, other = encode(image, swapped)
    rows = (found - other).abs().sum(dim=-1).view(27, 27).sum(dim=1)
    assert rows[0] > 0  # the first two of six tiles cover the upper third
    assert torch.allclose(rows[10:], torch.zeros(17, dtype=torch.float64), atol=1e-9)


def test_bfloat16_stays_near_float64() -> None:
    image = crops(300, 200)
    rough_model = tiny_moondream(torch.bfloat16)
    with torch.inference_mode():
        rough = encode_images(rough_model, [image])[0]
    exact = encode(image)[0]
    assert rough.dtype == torch.bfloat16
    assert (rough.double() - exact).norm() / exact.norm() < 0.03


def test_pixels_of_any_layout_are_read_alike() -> None:
    image = crops(300, 200)
    turned = Crops(np.asfortranarray(image.pixels), image.tiling, image.digest)
    assert torch.equal(encode(image)[0], encode(turned)[0])


def test_every_weight_learns() -> None:
    weights = tiny_moondream().weights.vision
    leaves = [weights.patch_emb.weight, weights.pos_emb, weights.blocks[0].attn.qkv.weight, weights.proj_mlp.fc2.bias]
    pixels = torch.from_numpy(crops(300, 200).pixels)
    try:
        for leaf in leaves:
            leaf.requires_grad_()
        features = vision.features(pixels, weights, CONFIG, dtype=torch.float32)
        local = stitch_pool(features[1:], rows=1, cols=1, margin=CONFIG.overlap_margin)
        grads = torch.autograd.grad(project(features[0], local, weights).square().sum(), leaves)
    finally:
        for leaf in leaves:
            leaf.requires_grad_(False)
    assert all(grad.abs().sum() > 0 for grad in grads)


def test_the_config_chooses_how_pixels_are_rounded() -> None:
    pixels_NHWC = torch.from_numpy(crops_of(0).pixels)

    def features(normalise: str, dtype: torch.dtype) -> torch.Tensor:
        config = replace(MICRO, vision=replace(MICRO.vision, normalise=normalise))
        tensors = {name: tensor.to(dtype) for name, tensor in micro_tensors(config).items()}
        weights = Moondream.of(config, tensors, micro_tokenizer(), name="micro").weights.vision
        return vision.features(pixels_NHWC, weights, config.vision, dtype=dtype)

    with torch.inference_mode():
        stepwise, once = (features(how, torch.bfloat16) for how in ("stepwise", "once"))
        exact = features("once", torch.float64)
        assert torch.equal(exact, features("stepwise", torch.float64))
    assert not torch.equal(stepwise, once)
    torch.testing.assert_close(once.double(), exact, rtol=0.1, atol=0.1)
