"""The shapes of captured prefills: their positions, sequences, and rows of media embeddings."""

from collections.abc import Iterator
from dataclasses import dataclass

from stoop_worker.engine.config import EngineConfig

__all__ = ["PrefillShape", "prefill_shapes"]

_MOST_MEDIA = 8  # with more, the work takes longer than its launches
_MOST_PROMPTS = 1024  # positions of prompts that have no media, or only cached media
_PROMPTS = 128  # positions of all prompts together, after one medium or a few
_PROMPT = 32  # positions per prompt, after more media
_FINE, _COARSE = 32, 128  # steps between sizes; a matrix product takes as long for any part of the coarse one
_BESIDE = 8  # sequences without their own medium, beside those with one
_LEAST_PROMPT = 4  # positions of a prompt, on average, in a step of prompts alone


@dataclass(frozen=True, slots=True)
class PrefillShape:
    """The most packed positions (including media), sequences, and rows of given embeddings that a prefill may have.

    It has fewer sequences than positions; equal numbers would be a decode.
    """

    positions: int
    sequences: int
    given: int


def prefill_shapes(config: EngineConfig, *, width: int) -> list[PrefillShape]:
    """Return the shapes to capture, smallest first; `width` is the positions of a usual medium, 0 for no media."""
    by_tokens = max(1, config.token_budget // width) if width else 0
    most_media = min(_MOST_MEDIA, config.max_batch, config.encode_budget, by_tokens)
    return [
        PrefillShape(positions, _sequences(media, positions, config), media * width)
        for media in range(most_media + 1)
        for positions in _sizes(media, width, config.token_budget)
    ]


def _sizes(media: int, width: int, budget: int) -> Iterator[int]:
    size = media * width
    most = media * width + max(_PROMPTS, _PROMPT * media) if media else _MOST_PROMPTS
    # a medium gets a step even if it exceeds the budget by itself
    most = min(most, max(budget, size + 1))
    while size < most:
        # a user waits for one medium or a few prompts, so padding costs most there
        grain = _FINE if media == 1 or size < _PROMPTS else _COARSE
        size = (size // grain + 1) * grain
        yield size


def _sequences(media: int, positions: int, config: EngineConfig) -> int:
    most = media + _BESIDE if media else positions // _LEAST_PROMPT
    return min(most, config.max_batch)
