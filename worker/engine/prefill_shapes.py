"""Which prefills are captured: for how many images, positions and sequences."""

from collections.abc import Iterator
from dataclasses import dataclass

from worker.engine.config import EngineConfig

__all__ = ["PrefillShape", "prefill_shapes"]

_MOST_IMAGES = 8  # more run longer than they launch
_MOST_PROMPTS = 1024  # positions of prompts without an image, or whose image is in the cache
_PROMPTS = 128  # positions of all prompts together that follow one image, or a few
_PROMPT = 32  # positions of each prompt where there are more images
_FINE, _COARSE = 32, 128  # from one size to the next; matrix products take as long for any part of the latter
_BESIDE = 8  # sequences without an image of their own, beside those with one
_LEAST_PROMPT = 4  # positions of a prompt, on average, in a step of prompts alone


@dataclass(frozen=True, slots=True)
class PrefillShape:
    """Exactly so many images, and at most so many packed positions, those of the images included, and sequences.

    There are fewer sequences than positions: as many would be a decode.
    """

    images: int
    positions: int
    sequences: int


def prefill_shapes(config: EngineConfig, *, prefix: int) -> list[PrefillShape]:
    """Return what is captured, the smallest first; `prefix` positions are an image's."""
    by_tokens = max(1, config.token_budget // prefix)
    most_images = min(_MOST_IMAGES, config.max_batch, config.crop_budget, by_tokens)
    return [
        PrefillShape(images, positions, _sequences(images, positions, config))
        for images in range(most_images + 1)
        for positions in _sizes(images, prefix, config.token_budget)
    ]


def _sizes(images: int, prefix: int, budget: int) -> Iterator[int]:
    size = images * prefix
    most = images * prefix + max(_PROMPTS, _PROMPT * images) if images else _MOST_PROMPTS
    # an image has a step even if it alone is over the budget
    most = min(most, max(budget, size + 1))
    while size < most:
        # one image, and few prompts, are awaited by somebody: there all padding is felt
        grain = _FINE if images == 1 or size < _PROMPTS else _COARSE
        size = (size // grain + 1) * grain
        yield size


def _sequences(images: int, positions: int, config: EngineConfig) -> int:
    most = images + _BESIDE if images else positions // _LEAST_PROMPT
    return min(most, config.max_batch)
