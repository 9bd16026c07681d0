"""Loads bge-m3 or bge-reranker-v2-m3 from its files."""

from functools import partial
from pathlib import Path
from typing import Final

import torch

from stoop_worker.engine.config import check_float8
from stoop_worker.engine.encoder import Encoder
from stoop_worker.engine.request import VectorKind
from stoop_worker.errors import CheckpointError, ConfigError
from stoop_worker.models.blocks.layers import Linear
from stoop_worker.models.encoders.embedder import Embedder
from stoop_worker.models.encoders.loaded import Loaded, poolings
from stoop_worker.models.encoders.reranker import Reranker
from stoop_worker.models.encoders.text_ids import TextIds
from stoop_worker.models.encoders.xlm_roberta import network
from stoop_worker.models.encoders.xlm_roberta.config import XLMRobertaConfig, read_config
from stoop_worker.models.encoders.xlm_roberta.weights import (
    VectorHeads,
    XLMRobertaWeights,
    expected_shapes,
    present_name,
)
from stoop_worker.models.loading.checkpoint import check_exactly, read_checkpoint
from stoop_worker.models.loading.digest import digest_of
from stoop_worker.models.loading.download import Download, Source
from stoop_worker.models.loading.options import LoadOptions

__all__ = ["open_model"]

_SPARSE: Final = "sparse_linear.pt"
_COLBERT: Final = "colbert_linear.pt"
_MULTIPLE: Final = 16  # cuBLAS requires it of both sizes of a matrix in float8


def open_model(found: Source, options: LoadOptions, download: Download) -> Encoder:
    """Load a model from the files found; raises `CheckpointError`."""
    loaded = _load(found, options)
    return Reranker(loaded) if loaded.width == 1 else Embedder(loaded)


def _load(found: Source, options: LoadOptions) -> Loaded:
    document = found.document()
    config = read_config(document)
    if not config.scores and not poolings(found.folder) <= {"cls_token"}:
        raise CheckpointError("1_Pooling/config.json asks for another pooling than that of the first token")
    texts = TextIds.read(found, config.vocab_size, min(config.max_context, options.max_context))
    tensors = read_checkpoint(
        found.weights,
        present_name,
        lambda shapes: check_exactly(shapes, expected_shapes(config)),
        options,
    )
    digest = digest_of(document, tensors, found.weights, "embeddings.LayerNorm.weight")
    name, untrained = found.identity(document)
    weights = XLMRobertaWeights.of(tensors, config)
    if options.fp8_linears:
        _check_fp8(config, options)
        weights = weights.in_fp8()
    heads = VectorHeads() if config.scores else _vector_heads(found.folder, config.dim, options)
    return Loaded(
        network=(
            partial(network.scores, weights=weights, config=config)
            if config.scores
            else network.VectorNetwork(weights, heads, config)
        ),
        texts=texts,
        width=1 if config.scores else config.dim,
        vocab_size=config.vocab_size,
        name=name,
        digest=digest,
        untrained=untrained,
        device=options.device,
        dtype=options.dtype,
        kinds=_kinds(heads),
    )


def _check_fp8(config: XLMRobertaConfig, options: LoadOptions) -> None:
    check_float8(options.device, "fp8_linears")
    if options.device.type == "cuda" and options.dtype is not torch.bfloat16:
        raise ConfigError("fp8_linears goes with bfloat16 on a GPU: use dtype bfloat16, or leave it off")
    if config.dim % _MULTIPLE or config.ff_dim % _MULTIPLE:
        raise ConfigError(f"fp8_linears needs layers whose sizes are multiples of {_MULTIPLE}: leave it off")


def _vector_heads(folder: Path, dim: int, options: LoadOptions) -> VectorHeads:
    """Read the heads that the folder has, each in a file of its own."""
    return VectorHeads(
        sparse=_vector_head(folder / _SPARSE, (1, dim), options),
        colbert=_vector_head(folder / _COLBERT, (dim, dim), options),
    )


def _vector_head(path: Path, shape: tuple[int, int], options: LoadOptions) -> Linear | None:
    if not path.exists():
        return None
    expected: dict[str, tuple[int, ...]] = {"weight": shape, "bias": shape[:1]}
    tensors = read_checkpoint(
        (path,), lambda name: (name, False), lambda shapes: check_exactly(shapes, expected), options
    )
    return Linear(tensors["weight"], tensors["bias"])


def _kinds(heads: VectorHeads) -> tuple[VectorKind, ...]:
    found = {VectorKind.DENSE: True, VectorKind.SPARSE: heads.sparse, VectorKind.COLBERT: heads.colbert}
    return tuple(kind for kind, head in found.items() if head is not None)
