"""The tensors of a pre-norm decoder: their names in a checkpoint, their shapes, and how they are merged.

C model dim, F inner dim of the MLP, D head dim, V vocabulary. Linear weights are (out, in), without biases.
"""

from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from stoop_worker.errors import CheckpointError
from stoop_worker.kernels.block_fp8 import BlockFp8, Weight, dense, joined
from stoop_worker.kernels.rotate_write import HeadNorms
from stoop_worker.models.decoder.config import DecoderConfig
from stoop_worker.models.loading.checkpoint import check_exactly

__all__ = ["Block", "DecoderWeights", "check_shapes", "present_name"]

_Shapes = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class Block:
    """One layer. `qkv` makes the heads of q, then of k, then of v; `gate_up` makes the gates, then the ups."""

    norm: Tensor
    qkv: Weight
    out: Weight
    head_norms: HeadNorms | None
    mlp_norm: Tensor
    gate_up: Weight
    down: Weight


@dataclass(frozen=True, slots=True)
class DecoderWeights:
    """`embeddings` and `head` are (V, C), the same tensor if they are tied. `epsilon` is that of the norms."""

    embeddings: Tensor
    blocks: tuple[Block, ...]
    norm: Tensor
    head: Tensor
    epsilon: float

    @classmethod
    def of(
        cls,
        tensors: MutableMapping[str, Tensor],
        config: DecoderConfig,
        quantised: MutableMapping[str, BlockFp8] | None = None,
    ) -> "DecoderWeights":
        """Take the tensors, by their present names, out of the mappings, so that merging holds one layer twice."""
        given = _Given(tensors, quantised or {})
        embeddings = tensors.pop("embed_tokens.weight")
        return cls(
            embeddings=embeddings,
            blocks=tuple(_block(given, f"layers.{layer}.", config) for layer in range(config.layers)),
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


class _Given(NamedTuple):
    """The tensors of a checkpoint, and its weights that stay in float8, by their present names."""

    tensors: MutableMapping[str, Tensor]
    quantised: MutableMapping[str, BlockFp8]

    def linear(self, *names: str) -> Weight:
        """Take weights out, and return them stacked by rows."""
        if all(f"{name}.weight" in self.quantised for name in names):
            parts = [self.quantised.pop(f"{name}.weight") for name in names]
            whole = parts[0] if len(parts) == 1 else joined(parts)
            return torch.cat([dense(part, self._dtype) for part in parts]) if whole is None else whole
        taken = [self._dense(f"{name}.weight") for name in names]
        return taken[0] if len(taken) == 1 else torch.cat(taken)

    def _dense(self, name: str) -> Tensor:
        return dense(self.quantised.pop(name), self._dtype) if name in self.quantised else self.tensors.pop(name)

    @property
    def _dtype(self) -> torch.dtype:
        return self.tensors["norm.weight"].dtype


def _block(given: _Given, prefix: str, config: DecoderConfig) -> Block:
    def take(name: str) -> Tensor:
        return given.tensors.pop(f"{prefix}{name}.weight")

    return Block(
        norm=take("input_layernorm"),
        qkv=given.linear(*(f"{prefix}self_attn.{part}_proj" for part in "qkv")),
        out=given.linear(f"{prefix}self_attn.o_proj"),
        head_norms=HeadNorms(take("self_attn.q_norm"), take("self_attn.k_norm"), config.epsilon)
        if config.head_norms
        else None,
        mlp_norm=take("post_attention_layernorm"),
        gate_up=given.linear(f"{prefix}mlp.gate_proj", f"{prefix}mlp.up_proj"),
        down=given.linear(f"{prefix}mlp.down_proj"),
    )


def _head(tensors: MutableMapping[str, Tensor], embeddings: Tensor, config: DecoderConfig) -> Tensor:
    head = tensors.pop("lm_head.weight", None)
    if not config.tied:
        assert head is not None, "the shapes were checked"
        return head
    if head is not None and not torch.equal(head, embeddings):
        raise CheckpointError("config: tie_word_embeddings is true, but lm_head.weight is not embed_tokens.weight")
    return embeddings
