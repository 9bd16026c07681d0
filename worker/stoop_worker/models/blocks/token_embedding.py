"""The embeddings of the tokens that a decode step reads. B rows, V vocabulary, C model dim."""

import torch
from torch import Tensor
from torch.nn.functional import embedding

from stoop_worker.engine.tensors import PENDING, FedRows, LastHeads

__all__ = ["embed_tokens"]


def embed_tokens(fed: FedRows, last: LastHeads, table_VC: Tensor) -> Tensor:
    """Return x_BC; a pending token is the one that its sequence sampled last, which the host has not read."""
    ids_B = fed.ids_B
    if fed.seats_B is not None:
        ids_B = torch.where(ids_B == PENDING, last.tokens_S[fed.seats_B], ids_B)
    return embedding(ids_B, table_VC)
