"""A window's keys and values in the KV cache, and the places that tokens attend to.

A sequence begins with its window, one medium. The pages of these positions hold, in each layer, the keys and values
that the layer's cross-attention makes of the states: the memory. The pages after them hold the tokens' own keys and
values. So both kinds of attention are paged attention over a part of the same pages, and the scheduler, the prefix
cache and the admission of requests treat a window as they treat an image.

T packed rows, K rows of tokens, B sequences.
"""

from dataclasses import dataclass, replace
from itertools import accumulate, pairwise

import numpy as np
import torch
from torch import Tensor

from stoop_worker.engine.device.upload import Upload
from stoop_worker.kernels.paged_attention import PagedLayout
from stoop_worker.models.whisper.config import WhisperConfig

__all__ = ["Reach", "TokenRows", "reach", "token_rows"]


@dataclass(frozen=True, slots=True)
class Reach:
    """The places that rows of tokens attend to: the tokens up to their `own`, and the `states` of the window."""

    own: PagedLayout
    states: PagedLayout


@dataclass(frozen=True, slots=True)
class TokenRows:
    """The rows of tokens, `rows_K`, in a batch that also has windows; `layout` is that of their sequences alone.

    `places_T` maps each row of a token to its place among these. All are on the device.
    """

    rows_K: Tensor
    places_T: Tensor
    layout: PagedLayout


def token_rows(layout: PagedLayout, config: WhisperConfig, device: torch.device) -> TokenRows:
    """Find the rows of tokens in a prefill with windows: a sequence computed from index 0 on begins with its window."""
    lengths = [end - start for start, end in pairwise(layout.cu_seqlens)]
    begins = [context == length for context, length in zip(layout.context_lens, lengths, strict=True)]
    firsts = [start + config.memory * begin for start, begin in zip(layout.cu_seqlens, begins, strict=False)]
    counts = [after - first for first, after in zip(firsts, layout.cu_seqlens[1:], strict=True)]
    kept = [sequence for sequence, count in enumerate(counts) if count]
    rows = np.concatenate(
        [np.arange(firsts[at], firsts[at] + counts[at]) for at in kept] or [np.zeros(0, dtype=np.int64)]
    )
    places = np.zeros(layout.cu_seqlens[-1])
    places[rows] = np.arange(len(rows))
    starts = (0, *accumulate(counts[at] for at in kept))
    upload = Upload(device)
    rows_K, places_T = upload.to_device(rows, torch.int64), upload.to_device(places, torch.int64)
    starts_B1, kept_B = upload.to_device(starts, torch.int32), upload.to_device(kept, torch.int64)
    upload.send()
    packed = PagedLayout(
        cu_seqlens_B1=starts_B1,
        context_lens_B=layout.context_lens_B[kept_B],
        page_table_BP=layout.page_table_BP[kept_B],
        prefix_lens_B=layout.prefix_lens_B[kept_B],
        cu_seqlens=starts,
        context_lens=tuple(layout.context_lens[at] for at in kept),
        prefix_lens=tuple(layout.prefix_lens[at] for at in kept),
        page_size=layout.page_size,
    )
    return TokenRows(rows_K, places_T, packed)


def reach(layout: PagedLayout, config: WhisperConfig) -> Reach:
    """Return the places that the rows of a batch attend to; all rows must be tokens."""
    size, contexts_B = layout.page_size, layout.context_lens_B
    states_B = torch.where(contexts_B > 0, config.states, 0).to(torch.int32)
    sequences = len(layout.context_lens)
    own = replace(
        layout,
        context_lens_B=(contexts_B - config.memory).clamp(min=0),
        page_table_BP=layout.page_table_BP[:, config.memory // size :],
        context_lens=tuple(length - config.memory for length in layout.context_lens),
    )
    states = replace(
        layout,
        context_lens_B=states_B,
        page_table_BP=layout.page_table_BP[:, : -(-config.states // size)],
        prefix_lens_B=states_B,  # every row sees all states
        context_lens=(config.states,) * sequences,
        prefix_lens=(config.states,) * sequences,
    )
    return Reach(own, states)
