"""The sizes of a pre-norm decoder, from the config.json of a Llama or a Qwen3."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from stoop_worker.errors import CheckpointError
from stoop_worker.models.blocks.rope import Llama3Scaling
from stoop_worker.models.loading.config_file import number_in

__all__ = ["DecoderConfig", "read_decoder_config"]

# fields with a value that this code cannot compute, and the values it can
_REQUIRED: Mapping[str, tuple[object, ...]] = {
    "attention_bias": (None, False),
    "mlp_bias": (None, False),
    "hidden_act": (None, "silu"),
    "use_sliding_window": (None, False),
    "partial_rotary_factor": (None, 1, 1.0),
}


@dataclass(frozen=True, slots=True)
class DecoderConfig:
    """A pre-norm decoder without biases: grouped heads, SwiGLU, rope over whole heads.

    `head_norms`: every head of q and k has an RMS norm before its rotation (Qwen3). `tied`: the head's weight is the
    table of embeddings.
    """

    dim: int
    ff_dim: int
    layers: int
    heads: int
    key_heads: int
    head_dim: int
    vocab_size: int
    max_context: int
    epsilon: float
    theta: float
    scaling: Llama3Scaling | None = None
    head_norms: bool = False
    tied: bool = False


def read_decoder_config(document: Mapping[str, Any]) -> DecoderConfig:
    """Read the sizes; raises `CheckpointError` for a field that is missing, or that needs an unsupported feature."""
    for name, accepted in _REQUIRED.items():
        if document.get(name) not in accepted:
            raise CheckpointError(f"config: {name} is {document[name]!r}, and this family has only {accepted[1]!r}")
    if set(document.get("layer_types") or ()) - {"full_attention"}:
        raise CheckpointError("config: layer_types asks for other layers than full_attention, the only ones here")
    rope = _rope(document)
    dim, heads = number_in(document, "hidden_size", int), number_in(document, "num_attention_heads", int)
    key_heads = number_in(document, "num_key_value_heads", int, heads)
    if heads % key_heads:
        raise CheckpointError(f"config: {heads} query heads cannot share {key_heads} key heads evenly")
    return DecoderConfig(
        dim=dim,
        ff_dim=number_in(document, "intermediate_size", int),
        layers=number_in(document, "num_hidden_layers", int),
        heads=heads,
        key_heads=key_heads,
        head_dim=number_in(document, "head_dim", int, dim // heads),
        vocab_size=number_in(document, "vocab_size", int),
        max_context=number_in(document, "max_position_embeddings", int),
        epsilon=number_in(document, "rms_norm_eps", float),
        theta=number_in(rope, "rope_theta", float),
        scaling=_scaling(rope),
        head_norms=str(document.get("model_type", "")).startswith("qwen3"),
        tied=bool(document.get("tie_word_embeddings", False)),
    )


def _rope(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """Gather the fields of rope, which newer files keep in `rope_parameters` and older ones beside the others."""
    theta = {"rope_theta": document["rope_theta"]} if "rope_theta" in document else {}
    found = {**theta, **(document.get("rope_scaling") or {}), **(document.get("rope_parameters") or {})}
    return {"rope_type": found.get("type", "default"), **found}


def _scaling(rope: Mapping[str, Any]) -> Llama3Scaling | None:
    match rope["rope_type"]:
        case "default" | "mrope":
            return None
        case "llama3":
            return Llama3Scaling(
                factor=number_in(rope, "factor", float),
                low=number_in(rope, "low_freq_factor", float),
                high=number_in(rope, "high_freq_factor", float),
                original_context=number_in(rope, "original_max_position_embeddings", int),
            )
    raise CheckpointError(f"config: rope of type {rope['rope_type']!r} is not known; known are default and llama3")
