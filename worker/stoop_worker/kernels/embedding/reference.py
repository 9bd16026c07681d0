"""The embeddings of tokens. B rows, N ids, V vocabulary, C model dim."""

import torch
from torch import Tensor
from torch.nn import functional

__all__ = ["embed"]


def embed(ids_B: Tensor, index_B: Tensor, last_N: Tensor, table_VC: Tensor) -> Tensor:
    """Return x_BC: the embedding of each row's id or, if that is negative, of the id in `last_N` at the row's index.

    Ids and indices are int64.
    """
    return functional.embedding(torch.where(ids_B < 0, last_N[index_B], ids_B), table_VC)
