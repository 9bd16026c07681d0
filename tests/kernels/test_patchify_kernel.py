"""The patchify kernel against its reference."""

import pytest
import torch

from stoop_worker.kernels.patchify import kernel, reference


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize(("crops", "height", "width", "patch"), [(2, 42, 42, 14), (1, 6, 9, 3), (3, 5, 7, 2)])
def test_equal_to_the_bit(crops: int, height: int, width: int, patch: int, dtype: torch.dtype) -> None:
    random = torch.Generator().manual_seed(0)
    pixels = torch.randint(0, 256, (crops, height, width, 3), dtype=torch.uint8, generator=random)
    # a reference takes whole patches alone
    whole = pixels[:, : height // patch * patch, : width // patch * patch]
    expected = reference.patchify(whole, patch, dtype=dtype)
    assert torch.equal(kernel.patchify(pixels, patch, dtype=dtype), expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_zeros_follow_up_to_a_number_of_columns(dtype: torch.dtype) -> None:
    random = torch.Generator().manual_seed(0)
    pixels = torch.randint(0, 256, (2, 42, 42, 3), dtype=torch.uint8, generator=random)
    found = kernel.patchify(pixels, 14, dtype=dtype, columns=592)
    assert torch.equal(found, reference.patchify(pixels, 14, dtype=dtype, columns=592))
    assert found.is_contiguous() and not found[..., 588:].any()
    assert torch.equal(found[..., :588], reference.patchify(pixels, 14, dtype=dtype))


def test_every_level() -> None:
    pixels = torch.arange(256, dtype=torch.uint8).view(1, 16, 16, 1)
    found = kernel.patchify(pixels, 16, dtype=torch.float32)
    assert torch.equal(found.flatten(), reference.normalised_levels(torch.float32, torch.device("cpu")))
