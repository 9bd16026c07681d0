"""The KV memory on the device. T tokens packed over sequences, S positions of the longest context, F frequencies."""

from collections.abc import Callable
from collections.abc import Sequence as Several

import torch
from torch import Tensor

from worker.engine.upload import Upload
from worker.kernels.paged_attention import PagedLayout
from worker.kernels.rotate_write import rotation_table
from worker.model.moondream import Moondream
from worker.model.paged_text import Pages

__all__ = ["Pool"]


class Pool:
    """So many pages of keys and values: (layers, 2, pages, page size, H, D) of `dtype`.

    `mark` is called before each layer of what is computed over it.
    """

    def __init__(
        self, model: Moondream, *, pages: int, page_size: int, dtype: torch.dtype, mark: Callable[[], None]
    ) -> None:
        config = model.config.text
        self.page_size = page_size
        self._mark = mark
        shape = (config.n_layers, 2, pages, page_size, config.n_heads, config.head_dim)
        self._pages = torch.zeros(shape, dtype=dtype, device=model.device)
        self._rotations_SF2 = rotation_table(
            config.max_context, config.rotary_dim, config.rope_theta, model.device, dtype=model.dtype
        )

    def at(self, positions_T: Tensor, slots_T: Tensor, layout: PagedLayout) -> Pages:
        """Return the pool as a batch sees it."""
        return Pages(positions_T, slots_T, layout, self._pages, self._rotations_SF2, self._mark)

    def copy(self, copies: Several[tuple[int, int]]) -> None:
        """Copy whole pages, (from, to), in all layers at once."""
        upload = Upload(self._pages.device)
        sources, targets = upload.to_device(copies, torch.int64).unbind(1)
        upload.send()
        # as bytes: not every dtype can be gathered
        pages = self._pages.view(torch.uint8)
        pages[:, :, targets] = pages[:, :, sources]
