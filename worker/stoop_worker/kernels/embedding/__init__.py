"""The embeddings of the tokens that a decode step reads, some of which only the device knows.

embed(ids_B, index_B, last_N, table_VC) -> x_BC
"""

from torch import Tensor

from stoop_worker.kernels.backend import uses_kernel
from stoop_worker.kernels.embedding import reference

__all__ = ["embed"]


def embed(ids_B: Tensor, index_B: Tensor, last_N: Tensor, table_VC: Tensor) -> Tensor:
    """Return the rows of the table; see `reference.embed`."""
    if uses_kernel(table_VC):
        from stoop_worker.kernels.embedding.kernel import embed as launch

        return launch(ids_B, index_B, last_N, table_VC)
    return reference.embed(ids_B, index_B, last_N, table_VC)
