"""The size of an image for a model that reads it at its own resolution, within a job's limits."""

import numpy as np
import pytest

from stoop_worker.images import ANY_PIXELS, Image, PatchRule, PixelLimits, fitting_size, made_ready

RULE = PatchRule()


def area(limits: PixelLimits, size: tuple[int, int] = (768, 1024)) -> int:
    height, width = fitting_size(*size, RULE.within(limits))
    assert height % 32 == width % 32 == 0
    return height * width


@pytest.mark.parametrize(
    ("limits", "least", "most"),
    [
        (ANY_PIXELS, 768 * 1024, 768 * 1024),
        (PixelLimits(max_pixels=262_144), 200_000, 262_144),
        (PixelLimits(max_pixels=1), 32 * 32, 32 * 32),
        (PixelLimits(max_pixels=30_000), 20_000, 30_000),  # the model's least gives way
        (PixelLimits(min_pixels=1_000_000), 1_000_000, 1_150_000),
        (PixelLimits(min_pixels=2_000_000), 2_000_000, 2_100_000),  # the model's most gives way
        (PixelLimits(min_pixels=1 << 26), 5_242_880, 5_400_000),  # up to the rule's own most, in whole cells
    ],
)
def test_a_job_s_limits_hold_and_the_model_s_give_way(limits: PixelLimits, least: int, most: int) -> None:
    assert least <= area(limits) <= most


def test_a_large_image_is_seen_whole_only_if_a_job_asks_for_it() -> None:
    photo = (1600, 2400)
    assert area(ANY_PIXELS, photo) <= RULE.max_pixels
    assert area(PixelLimits(max_pixels=1 << 23), photo) == 1600 * 2400
    assert area(PixelLimits(max_pixels=1 << 23), (4000, 4000)) <= RULE.most_pixels


@pytest.mark.parametrize(("height", "width"), [(600, 850), (1600, 1600)])
def test_a_device_resizes_an_image_that_is_not_much_too_large(height: int, width: int) -> None:
    image = Image.of(np.zeros((height, width, 3), dtype=np.uint8))
    left = made_ready(image, RULE, on_device=True)
    assert isinstance(left, Image)
    assert left.pixels is image.pixels and left.size == fitting_size(height, width, RULE)


def test_an_image_that_is_much_too_large_is_resized_before_it_travels() -> None:
    image = Image.of(np.zeros((1700, 1700, 3), dtype=np.uint8))
    fitted = made_ready(image, RULE, on_device=True)
    assert fitted.pixels.shape == (*fitting_size(1700, 1700, RULE), 3)
