"""The tensors of a pre-norm decoder: their names in a checkpoint, their shapes, and how they are merged.

C model dim, F inner dim of the MLP, D head dim, V vocabulary. Linear weights are (out, in), without biases.
"""

from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass

import torch
from torch import Tensor

from stoop_worker.errors import CheckpointError
from stoop_worker.kernels.rotate_write import HeadNorms
from stoop_worker.models.decoder.config import DecoderConfig
from stoop_worker.models.loading.checkpoint import check_exactly

__all__ = ["Block", "DecoderWeights", "check_shapes", "present_name"]

_Shapes = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class Block:
    """One layer. `qkv` makes the heads of q, then of k, then of v; `gate_up` makes the gates, then the ups."""

    norm: Tensor
    qkv: Tensor
    out: Tensor
    head_norms: HeadNorms | None
    mlp_norm: Tensor
    gate_up: Tensor
    down: Tensor


@dataclass(frozen=True, slots=True)
class DecoderWeights:
    """`embeddings` and `head` are (V, C), the same tensor if they are tied. `epsilon` is that of the norms."""

    embeddings: Tensor
    blocks: tuple[Block, ...]
    norm: Tensor
    head: Tensor
    epsilon: float

    @classmethod
    def of(cls, tensors: MutableMapping[str, Tensor], config: DecoderConfig) -> "DecoderWeights":
        """Take the tensors, by their present names, out of the mapping, so that merging holds one layer twice."""
        embeddings = tensors.pop("embed_tokens.weight")
        return cls(
            embeddings=embeddings,
            blocks=tuple(_block(tensors, f"layers.{layer}.", config) for layer in range(config.layers)),
            norm=tensors.pop("norm.weight"),
            head=_head(tensors, embeddings, config),
            epsilon=config.epsilon,
        )


def present_name(stored: str) -> tuple[str, bool] | None:
    """Return the name without the prefix of released files; None for a buffer."""
    if stored.endswith("rotary_emb.inv_freq"):
        return None
    return stored.removeprefix("model."), False


def check_shapes(shapes: _Shapes, config: DecoderConfig) -> None:
    """Raise `CheckpointError` unless these are the names and shapes of this decoder."""
    expected = _shapes(config)
    if config.tied and "lm_head.weight" in shapes:
        expected["lm_head.weight"] = expected["embed_tokens.weight"]
    check_exactly(shapes, expected)


def _shapes(config: DecoderConfig) -> dict[str, tuple[int, ...]]:
    dim, inner, head = config.dim, config.ff_dim, config.head_dim
    layer: dict[str, tuple[int, ...]] = {
        "input_layernorm": (dim,),
        "self_attn.q_proj": (config.heads * head, dim),
        "self_attn.k_proj": (config.key_heads * head, dim),
        "self_attn.v_proj": (config.key_heads * head, dim),
        "self_attn.o_proj": (dim, config.heads * head),
        "post_attention_layernorm": (dim,),
        "mlp.gate_proj": (inner, dim),
        "mlp.up_proj": (inner, dim),
        "mlp.down_proj": (dim, inner),
    }
    if config.head_norms:
        layer |= {"self_attn.q_norm": (head,), "self_attn.k_norm": (head,)}
    shapes = {
        f"layers.{number}.{name}.weight": shape for number in range(config.layers) for name, shape in layer.items()
    }
    shapes |= {"embed_tokens.weight": (config.vocab_size, dim), "norm.weight": (dim,)}
    return shapes if config.tied else {**shapes, "lm_head.weight": (config.vocab_size, dim)}


def _block(tensors: MutableMapping[str, Tensor], prefix: str, config: DecoderConfig) -> Block:
    def take(name: str) -> Tensor:
        return tensors.pop(f"{prefix}{name}.weight")

    return Block(
        norm=take("input_layernorm"),
        qkv=torch.cat([take(f"self_attn.{part}_proj") for part in "qkv"]),
        out=take("self_attn.o_proj"),
        head_norms=HeadNorms(take("self_attn.q_norm"), take("self_attn.k_norm"), config.epsilon)
        if config.head_norms
        else None,
        mlp_norm=take("post_attention_layernorm"),
        gate_up=torch.cat([take("mlp.gate_proj"), take("mlp.up_proj")]),
        down=take("mlp.down_proj"),
    )


def _head(tensors: MutableMapping[str, Tensor], embeddings: Tensor, config: DecoderConfig) -> Tensor:
    head = tensors.pop("lm_head.weight", None)
    if not config.tied:
        assert head is not None, "the shapes were checked"
        return head
    if head is not None and not torch.equal(head, embeddings):
        raise CheckpointError("config: tie_word_embeddings is true, but lm_head.weight is not embed_tokens.weight")
    return embeddings
