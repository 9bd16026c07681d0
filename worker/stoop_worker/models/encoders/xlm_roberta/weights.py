"""The tensors of an XLM-RoBERTa: their names in a checkpoint, their shapes, and how they are merged.

C model dim, F inner dim of the MLP, S positions, V vocabulary.
"""

from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from stoop_worker.kernels.fp8 import Fp8Linear
from stoop_worker.models.blocks.layers import AnyLinear, LayerNorm, Linear
from stoop_worker.models.encoders.xlm_roberta.config import XLMRobertaConfig

__all__ = ["Block", "ScoreHead", "VectorHeads", "XLMRobertaWeights", "expected_shapes", "present_name"]

_PASSED_OVER = ("pooler.", "embeddings.position_ids")
_Tensors = MutableMapping[str, Tensor]


@dataclass(frozen=True, slots=True)
class Block:
    """One layer. `qkv` makes the heads of q, then of k, then of v."""

    qkv: AnyLinear
    out: AnyLinear
    norm: LayerNorm
    fc1: AnyLinear
    fc2: AnyLinear
    mlp_norm: LayerNorm


@dataclass(frozen=True, slots=True)
class ScoreHead:
    """Two layers over the hidden state of the first token."""

    dense: Linear
    out: Linear


@dataclass(frozen=True, slots=True)
class VectorHeads:
    """The layers over every token's hidden state, of a file each: `sparse` (1, C) and `colbert` (C, C)."""

    sparse: Linear | None = None
    colbert: Linear | None = None


@dataclass(frozen=True, slots=True)
class XLMRobertaWeights:
    """`words` is (V, C). `positions` is (S, C), with the embedding of the only token type in use added to each row."""

    words: Tensor
    positions: Tensor
    norm: LayerNorm
    blocks: tuple[Block, ...]
    head: ScoreHead | None

    @classmethod
    def of(cls, tensors: _Tensors, config: XLMRobertaConfig) -> "XLMRobertaWeights":
        """Take the tensors, by their present names, out of the mapping."""
        token_type = tensors.pop("embeddings.token_type_embeddings.weight")[0]
        return cls(
            words=tensors.pop("embeddings.word_embeddings.weight"),
            positions=tensors.pop("embeddings.position_embeddings.weight") + token_type,
            norm=LayerNorm(*_pair(tensors, "embeddings.LayerNorm")),
            blocks=tuple(_block(tensors, f"encoder.layer.{layer}.") for layer in range(config.layers)),
            head=_head(tensors) if config.scores else None,
        )

    def in_fp8(self) -> "XLMRobertaWeights":
        """Return weights whose blocks have fp8 linears; all else is shared."""
        return replace(self, blocks=tuple(_in_fp8(block) for block in self.blocks))


def present_name(stored: str) -> tuple[str, bool] | None:
    """Return the name without the prefix of some files; None for tensors that no answer needs."""
    name = stored.removeprefix("roberta.")
    return None if name.startswith(_PASSED_OVER) else (name, False)


def expected_shapes(config: XLMRobertaConfig) -> Mapping[str, tuple[int, ...]]:
    """Return the shape of every tensor by its present name."""
    dim, inner = config.dim, config.ff_dim
    shapes: dict[str, tuple[int, ...]] = {
        "embeddings.word_embeddings.weight": (config.vocab_size, dim),
        "embeddings.position_embeddings.weight": (config.positions, dim),
        "embeddings.token_type_embeddings.weight": (config.token_types, dim),
        **_norm("embeddings.LayerNorm", dim),
    }
    for layer in range(config.layers):
        prefix = f"encoder.layer.{layer}."
        for name in ("self.query", "self.key", "self.value", "output.dense"):
            shapes |= _linear(f"{prefix}attention.{name}", dim, dim)
        shapes |= _norm(f"{prefix}attention.output.LayerNorm", dim)
        shapes |= _linear(f"{prefix}intermediate.dense", inner, dim)
        shapes |= _linear(f"{prefix}output.dense", dim, inner)
        shapes |= _norm(f"{prefix}output.LayerNorm", dim)
    if config.scores:
        shapes |= _linear("classifier.dense", dim, dim) | _linear("classifier.out_proj", 1, dim)
    return shapes


def _linear(name: str, out: int, into: int) -> dict[str, tuple[int, ...]]:
    return {f"{name}.weight": (out, into), f"{name}.bias": (out,)}


def _norm(name: str, dim: int) -> dict[str, tuple[int, ...]]:
    return {f"{name}.weight": (dim,), f"{name}.bias": (dim,)}


def _block(tensors: _Tensors, prefix: str) -> Block:
    merged = [_pair(tensors, f"{prefix}attention.self.{part}") for part in ("query", "key", "value")]
    return Block(
        qkv=Linear(torch.cat([weight for weight, _ in merged]), torch.cat([bias for _, bias in merged])),
        out=Linear(*_pair(tensors, f"{prefix}attention.output.dense")),
        norm=LayerNorm(*_pair(tensors, f"{prefix}attention.output.LayerNorm")),
        fc1=Linear(*_pair(tensors, f"{prefix}intermediate.dense")),
        fc2=Linear(*_pair(tensors, f"{prefix}output.dense")),
        mlp_norm=LayerNorm(*_pair(tensors, f"{prefix}output.LayerNorm")),
    )


def _in_fp8(block: Block) -> Block:
    qkv, out, fc1, fc2 = (Fp8Linear.of(each.weight, each.bias) for each in (block.qkv, block.out, block.fc1, block.fc2))
    return replace(block, qkv=qkv, out=out, fc1=fc1, fc2=fc2)


def _head(tensors: _Tensors) -> ScoreHead:
    return ScoreHead(Linear(*_pair(tensors, "classifier.dense")), Linear(*_pair(tensors, "classifier.out_proj")))


def _pair(tensors: _Tensors, name: str) -> tuple[Tensor, Tensor]:
    return tensors.pop(f"{name}.weight"), tensors.pop(f"{name}.bias")
