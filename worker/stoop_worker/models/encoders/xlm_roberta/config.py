"""The sizes of an XLM-RoBERTa, from its config.json."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from stoop_worker.errors import CheckpointError
from stoop_worker.kernels.layer_norm.reference import EPSILON
from stoop_worker.models.loading.config_file import number_in

__all__ = ["XLMRobertaConfig", "read_config"]

# fields with values that this code can compute, and the one that a file means when it leaves the field out
_REQUIRED: Mapping[str, object] = {"hidden_act": "gelu", "position_embedding_type": "absolute"}


@dataclass(frozen=True, slots=True)
class XLMRobertaConfig:
    """A post-norm encoder. `first_position` is the row of the table of positions that a text starts with."""

    dim: int
    ff_dim: int
    layers: int
    heads: int
    vocab_size: int
    positions: int
    first_position: int
    token_types: int
    scores: bool

    @property
    def max_context(self) -> int:
        """The longest text in tokens."""
        return self.positions - self.first_position


def read_config(document: Mapping[str, Any]) -> XLMRobertaConfig:
    """Read the sizes; raises `CheckpointError` for a field that is missing, or has an unsupported value."""
    for name, accepted in _REQUIRED.items():
        if document.get(name, accepted) != accepted:
            raise CheckpointError(f"config: {name} is {document[name]!r}, and this family has only {accepted!r}")
    if document.get("layer_norm_eps") != EPSILON:
        raise CheckpointError(f"config: layer_norm_eps is {document.get('layer_norm_eps')!r}: expected {EPSILON}")
    dim, heads = number_in(document, "hidden_size", int), number_in(document, "num_attention_heads", int)
    if dim % heads:
        raise CheckpointError(f"config: {heads} heads cannot share {dim} channels evenly")
    return XLMRobertaConfig(
        dim=dim,
        ff_dim=number_in(document, "intermediate_size", int),
        layers=number_in(document, "num_hidden_layers", int),
        heads=heads,
        vocab_size=number_in(document, "vocab_size", int),
        positions=number_in(document, "max_position_embeddings", int),
        first_position=number_in(document, "pad_token_id", int, 1) + 1,
        token_types=number_in(document, "type_vocab_size", int),
        scores=_scores(document),
    )


def _scores(document: Mapping[str, Any]) -> bool:
    """Return whether the model has a head that scores pairs; raises `CheckpointError` if it has another head."""
    architectures = document.get("architectures")
    if architectures == ["XLMRobertaModel"]:
        return False
    labels = document.get("id2label") or {"0": "LABEL_0"}
    if architectures == ["XLMRobertaForSequenceClassification"] and len(labels) == 1:
        return True
    raise CheckpointError(
        f"config: architectures is {architectures!r} with {len(labels)} labels: this version runs XLMRobertaModel, and "
        "XLMRobertaForSequenceClassification with one label"
    )
