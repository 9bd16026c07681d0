"""The embeddings of the tokens that a decode step reads. B rows, V vocabulary, C model dim."""

from torch import Tensor
from torch.nn import functional

from stoop_worker.engine.tensors import PENDING, FedRows, LastHeads
from stoop_worker.kernels.embedding import embed

__all__ = ["embed_tokens"]

assert PENDING < 0, "`embed` knows a pending token by its sign"


def embed_tokens(fed: FedRows, last: LastHeads, table_VC: Tensor) -> Tensor:
    """Return x_BC; a pending token is the one that its sequence sampled last, which the host has not read."""
    if fed.seats_B is None:
        return functional.embedding(fed.ids_B, table_VC)
    return embed(fed.ids_B, fed.seats_B, last.tokens_S, table_VC)
