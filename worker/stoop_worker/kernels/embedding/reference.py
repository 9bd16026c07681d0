"""The embeddings of tokens. B rows, S seats, V vocabulary, C model dim."""

import torch
from torch import Tensor
from torch.nn import functional

__all__ = ["embed"]


def embed(ids_B: Tensor, seats_B: Tensor, last_S: Tensor, table_VC: Tensor) -> Tensor:
    """Return x_BC: the embedding of each row's id or, if that is negative, of the last id in the row's seat.

    Ids and seats are int64.
    """
    return functional.embedding(torch.where(ids_B < 0, last_S[seats_B], ids_B), table_VC)
