import numpy as np
import pytest
import torch

from stoop_worker.kernels.patchify import normalised_levels, patchify

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("level", "value"), [(0, -1), (64, -0.49609375), (100, -0.21484375), (127, -0.00390625), (128, 0.0078125), (255, 1)]
)
def test_bfloat16_rounds_after_every_step(level: int, value: float) -> None:
    assert normalised_levels(torch.bfloat16, CPU)[level].item() == value


def test_half_of_the_levels_differ_from_a_value_rounded_once() -> None:
    once = normalised_levels(torch.float32, CPU).bfloat16()
    assert (normalised_levels(torch.bfloat16, CPU) != once).sum() == 128
    assert torch.equal(normalised_levels(torch.bfloat16, CPU, stepwise=False), once)


@pytest.mark.parametrize(("level", "value"), [(64, -0.498046875), (100, -0.2158203125), (127, -0.0039367676)])
def test_rounded_once_a_value_is_nearer_to_the_exact_one(level: int, value: float) -> None:
    pixels = torch.full((1, 3, 3, 3), level, dtype=torch.uint8)
    patches = patchify(pixels, 3, dtype=torch.bfloat16, stepwise=False)
    assert patches.dtype is torch.bfloat16
    assert patches.unique().item() == pytest.approx(value, rel=1e-7)


def test_patches_run_by_row_and_their_values_by_channel_row_column() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (2, 6, 6, 3), dtype=np.uint8)
    patches = patchify(torch.from_numpy(pixels), 3, dtype=torch.float64)
    assert patches.shape == (2, 4, 27)
    for crop, patch, channel, y, x in np.ndindex(2, 4, 3, 3, 3):
        level = pixels[crop, patch // 2 * 3 + y, patch % 2 * 3 + x, channel]
        assert patches[crop, patch, channel * 9 + y * 3 + x].item() == pytest.approx(level / 127.5 - 1)
