"""The tensors of an embeddinggemma: their names in its files, their shapes, and how they are merged.

C model dim, F inner dim of the MLP, V vocabulary, D head dim. Linear weights are (out, in), without biases.
"""

from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass

import torch
from torch import Tensor

from stoop_worker.models.encoders.gemma.config import GemmaConfig

__all__ = ["Block", "GemmaWeights", "expected_shapes", "present_name"]

_Tensors = MutableMapping[str, Tensor]
_NORMS = ("input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm")


@dataclass(frozen=True, slots=True)
class Block:
    """One layer. `qkv` makes the heads of q, then of k, then of v; `gate_up` makes the gates, then the ups.

    The norms are those before and after the attention, and before and after the MLP. All weights of norms are float32,
    with the 1 added that files leave out.
    """

    norms: tuple[Tensor, ...]
    qkv: Tensor
    q_norm: Tensor
    k_norm: Tensor
    out: Tensor
    gate_up: Tensor
    down: Tensor


@dataclass(frozen=True, slots=True)
class GemmaWeights:
    """`words` is (V, C); `denses` are the layers over the mean, (out, in) float32 each."""

    words: Tensor
    blocks: tuple[Block, ...]
    norm: Tensor
    denses: tuple[Tensor, ...]

    @classmethod
    def of(cls, tensors: _Tensors, denses: tuple[Tensor, ...], config: GemmaConfig) -> "GemmaWeights":
        """Take the tensors, by their present names, out of the mapping."""
        return cls(
            words=tensors.pop("embed_tokens.weight"),
            blocks=tuple(_block(tensors, f"layers.{layer}.") for layer in range(config.layers)),
            norm=_of_norm(tensors.pop("norm.weight")),
            denses=denses,
        )


def present_name(stored: str) -> tuple[str, bool] | None:
    """Return the name without the prefix of some files."""
    return stored.removeprefix("model."), False


def expected_shapes(config: GemmaConfig) -> Mapping[str, tuple[int, ...]]:
    """Return the shape of every tensor by its present name."""
    dim, inner, head = config.dim, config.ff_dim, config.head_dim
    layer: dict[str, tuple[int, ...]] = {
        **dict.fromkeys(_NORMS, (dim,)),
        "self_attn.q_proj": (config.heads * head, dim),
        "self_attn.k_proj": (config.key_heads * head, dim),
        "self_attn.v_proj": (config.key_heads * head, dim),
        "self_attn.o_proj": (dim, config.heads * head),
        "self_attn.q_norm": (head,),
        "self_attn.k_norm": (head,),
        "mlp.gate_proj": (inner, dim),
        "mlp.up_proj": (inner, dim),
        "mlp.down_proj": (dim, inner),
    }
    shapes = {
        f"layers.{number}.{name}.weight": shape for number in range(config.layers) for name, shape in layer.items()
    }
    return {**shapes, "embed_tokens.weight": (config.vocab_size, dim), "norm.weight": (dim,)}


def _block(tensors: _Tensors, prefix: str) -> Block:
    def take(name: str) -> Tensor:
        return tensors.pop(f"{prefix}{name}.weight")

    return Block(
        norms=tuple(_of_norm(take(name)) for name in _NORMS),
        qkv=torch.cat([take(f"self_attn.{part}_proj") for part in "qkv"]),
        q_norm=_of_norm(take("self_attn.q_norm")),
        k_norm=_of_norm(take("self_attn.k_norm")),
        out=take("self_attn.o_proj"),
        gate_up=torch.cat([take("mlp.gate_proj"), take("mlp.up_proj")]),
        down=take("mlp.down_proj"),
    )


def _of_norm(weight: Tensor) -> Tensor:
    return 1 + weight.to(torch.promote_types(weight.dtype, torch.float32))
