"""The vision encoder's kernels, compiled and at full size, against exact arithmetic."""

import numpy as np
import pytest
import torch
from torch import Tensor

from stoop_worker.images import CropGeometry, Image, cut
from stoop_worker.kernels import layer_norm, patchify, resize, rotate_heads, stitch_pool, vision_attention
from stoop_worker.kernels.fp8 import FixedScale
from stoop_worker.kernels.layer_norm import reference as norm_reference
from stoop_worker.kernels.patchify import reference as patchify_reference
from stoop_worker.kernels.stitch_pool import reference as pool_reference
from stoop_worker.kernels.vision_attention import hopper
from stoop_worker.models.blocks.pixels import send_pixels
from stoop_worker.models.moondream.crops import cut_on_device

PATCHES, HEADS, HEAD_DIM, GRID, MARGIN = 729, 16, 72, 27, 4
ROWS = [1, 3, 128, 1031, 5832, 41000]


@pytest.fixture(autouse=True)
def drawn_alike() -> None:
    torch.manual_seed(0)


def randn(*shape: int, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    return torch.randn(*shape, device="cuda").to(dtype)


def error(found: Tensor, expected: Tensor) -> float:
    expected = expected.double()
    return ((found.double() - expected).norm() / expected.norm()).item()


def norm_inputs(rows: int, width: int) -> tuple[Tensor, tuple[Tensor, Tensor], Tensor, Tensor]:
    added = randn(rows, width), randn(rows, width)
    return 3 * randn(rows, width) + 1, added, 1 + 0.1 * randn(width), randn(width)


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("width", [128, 1152, 2048])
def test_layer_norm(rows: int, width: int) -> None:
    x, _, weight, bias = norm_inputs(rows, width)
    exact = norm_reference.layer_norm(x.double(), weight.double(), bias.double())
    assert error(layer_norm.layer_norm(x, weight, bias), exact) < 4e-3


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize(("width", "count"), [(1152, 1), (2048, 2)])
def test_sums_are_rounded_as_torch_rounds_them(rows: int, width: int, count: int) -> None:
    x, added, weight, bias = norm_inputs(rows, width)
    summed, normed = layer_norm.add_layer_norm(x, added[:count], weight, bias)
    expected, _ = norm_reference.add_layer_norm(x, added[:count], weight, bias)
    assert torch.equal(summed, expected)
    exact = norm_reference.layer_norm(expected.double(), weight.double(), bias.double())
    assert error(normed, exact) < 4e-3


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(
    ("crops", "patches", "heads"), [(1, 729, 16), (28, 729, 16), (3, 65, 2), (2, 128, 3), (2, 144, 1)]
)
def test_vision_attention(crops: int, patches: int, heads: int, dtype: torch.dtype) -> None:
    qkv = randn(crops, patches, 3, heads, HEAD_DIM, dtype=dtype)
    qkv[:, :, 0] *= 3  # so that some keys matter far more than others
    found = vision_attention.vision_attention(qkv)
    assert found.shape == (crops, patches, heads, HEAD_DIM)
    assert error(found, vision_attention.vision_attention(qkv.double())) < 8e-3


@pytest.mark.parametrize("crops", [1, 27])
def test_vision_attention_in_fp8(crops: int) -> None:
    qkv = randn(crops, PATCHES, 3, HEADS, HEAD_DIM)
    qkv[:, :, 0] *= 3
    scale = FixedScale.of(4 * qkv[:, :, 2])
    found = vision_attention.vision_attention_fp8(qkv, scale)
    assert (found.shape, found.dtype) == ((crops, PATCHES, HEADS, HEAD_DIM), torch.float8_e4m3fn)
    assert error(found.float() * scale.value, vision_attention.vision_attention(qkv.float())) < 4e-2


@pytest.mark.parametrize("growth", [-1, 1])
def test_attention_whose_scores_grow_or_fall_from_key_to_key(growth: int) -> None:
    qkv = randn(2, PATCHES, 3, HEADS, HEAD_DIM)
    qkv[:, :, :2] = 1 + qkv[:, :, :2] / 8
    slope = torch.linspace(0, 9, PATCHES, device="cuda").to(qkv.dtype)
    qkv[:, :, 1] *= (slope if growth > 0 else slope.flip(0))[:, None, None]
    assert error(vision_attention.vision_attention(qkv), vision_attention.vision_attention(qkv.double())) < 8e-3


def test_attention_is_the_same_to_the_bit_each_time() -> None:
    qkv = randn(27, PATCHES, 3, HEADS, HEAD_DIM)
    expected = vision_attention.vision_attention(qkv)
    for _ in range(50):
        assert torch.equal(vision_attention.vision_attention(qkv), expected)


def test_attention_of_other_heads_is_left_to_a_library() -> None:
    qkv = randn(2, 100, 3, 4, 64)
    assert not hopper.takes(qkv)
    assert error(vision_attention.vision_attention(qkv), vision_attention.vision_attention(qkv.double())) < 8e-3


@pytest.mark.parametrize(("heads", "head_dim"), [(16, 64), (16, 72), (2, 16)])
def test_attention_of_sizes_that_come_once(heads: int, head_dim: int) -> None:
    qkv = randn(2, 301, 3, heads, head_dim)
    found = vision_attention.vision_attention(qkv, sizes_recur=False)
    assert error(found, vision_attention.reference.vision_attention(qkv.float())) < 0.01


@pytest.mark.parametrize("patches", [1, 37, 2052])
def test_queries_and_keys_are_rotated(patches: int) -> None:
    qkv = randn(patches, 3, 16, 64)
    angles = 9 * torch.randn(patches, 32, device="cuda")
    rotations = torch.stack((angles.cos(), angles.sin()), dim=-1)
    expected = qkv.double()
    rotate_heads.reference.rotate_heads(expected, rotations.double())
    rotate_heads.rotate_heads(qkv, rotations)
    assert error(qkv, expected) < 0.01


def test_attention_reads_nothing_beyond_its_patches() -> None:
    qkv = randn(3, PATCHES, 3, HEADS, HEAD_DIM)
    expected = vision_attention.vision_attention(qkv[1:2])
    qkv[0], qkv[2] = torch.nan, torch.nan
    assert torch.equal(vision_attention.vision_attention(qkv[1:2]), expected)
    whole = vision_attention.vision_attention(qkv)
    assert torch.equal(whole[1:2], expected)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_every_level_of_a_patch_is_right_to_the_bit(dtype: torch.dtype) -> None:
    pixels = torch.randint(0, 256, (9, 378, 378, 3), dtype=torch.uint8)
    expected = patchify_reference.patchify(pixels, 14, dtype=dtype)
    assert torch.equal(patchify.patchify(pixels.cuda(), 14, dtype=dtype).cpu(), expected)


@pytest.mark.parametrize("tilings", [[(2, 4)], [(1, 1)], [(1, 1), (3, 4), (1, 7), (2, 2)]])
def test_both_views_of_several_images(tilings: list[tuple[int, int]]) -> None:
    rows, crops = [], 0
    for high, wide in tilings:
        rows.append((crops, crops if high * wide == 1 else crops + 1, high, wide))
        crops += 1 if high * wide == 1 else 1 + high * wide
    features = randn(crops, GRID**2, 1152)
    table = torch.tensor(rows, dtype=torch.int32)
    exact = pool_reference.global_and_local(features.double(), table, margin=MARGIN)
    assert error(stitch_pool.global_and_local(features, table.cuda(), margin=MARGIN), exact) < 3e-3


@pytest.mark.parametrize("sizes", [(600, 850, 644, 1176), (3000, 4000, 378, 378), (2000, 30, 378, 378), (1, 1, 9, 9)])
def test_resizing_is_the_same_to_the_bit(sizes: tuple[int, int, int, int]) -> None:
    high, wide, height, width = sizes
    pixels = torch.randint(0, 256, (high, wide, 3), dtype=torch.uint8)
    assert torch.equal(resize.resize(pixels.cuda(), height, width).cpu(), resize.resize(pixels, height, width))


@pytest.mark.parametrize("size", [(600, 850), (1, 1), (378, 378), (3000, 4000), (1, 5000), (4000, 400)])
def test_crops_are_those_that_pillow_cuts(size: tuple[int, int]) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (*size, 3), dtype=np.uint8)
    expected = cut(Image.of(pixels), CropGeometry()).pixels
    # the one local crop of a small image is the global one
    expected = expected[: 1 if len(expected) == 2 else len(expected)]
    found = torch.zeros(expected.shape, dtype=torch.uint8, device="cuda")
    cut_on_device(torch.from_numpy(pixels).cuda(), CropGeometry(), found)
    assert np.array_equal(found.cpu().numpy(), expected)


def test_pixels_arrive_while_the_device_is_behind() -> None:
    device = torch.device("cuda")
    busy = torch.randn(4096, 4096, device=device)
    kept = []
    for number in range(100):
        busy = (busy @ busy).clamp(-1, 1)  # so that the sums queue up behind it
        arrays = [np.full((600, 850, 3), number, dtype=np.uint8), np.full((7, 5, 3), 2 * number, dtype=np.uint8)]
        kept.append([pixels.float().mean() for pixels in send_pixels(arrays, device)])
    assert [[round(float(mean)) for mean in means] for means in kept] == [[n, 2 * n] for n in range(100)]
