"""The sizes of a pre-norm decoder, from the config.json of a Llama or a Qwen3."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from stoop_worker.errors import CheckpointError
from stoop_worker.models.blocks.rope import Llama3Scaling

__all__ = ["DecoderConfig", "read_decoder_config"]

_T = TypeVar("_T")

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
    dim, heads = _number(document, "hidden_size", int), _number(document, "num_attention_heads", int)
    key_heads = _number(document, "num_key_value_heads", int, heads)
    if heads % key_heads:
        raise CheckpointError(f"config: {heads} query heads cannot share {key_heads} key heads evenly")
    return DecoderConfig(
        dim=dim,
        ff_dim=_number(document, "intermediate_size", int),
        layers=_number(document, "num_hidden_layers", int),
        heads=heads,
        key_heads=key_heads,
        head_dim=_number(document, "head_dim", int, dim // heads),
        vocab_size=_number(document, "vocab_size", int),
        max_context=_number(document, "max_position_embeddings", int),
        epsilon=_number(document, "rms_norm_eps", float),
        theta=_number(rope, "rope_theta", float),
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
                factor=_number(rope, "factor", float),
                low=_number(rope, "low_freq_factor", float),
                high=_number(rope, "high_freq_factor", float),
                original_context=_number(rope, "original_max_position_embeddings", int),
            )
    raise CheckpointError(f"config: rope of type {rope['rope_type']!r} is not known; known are default and llama3")


def _number(document: Mapping[str, Any], name: str, kind: type[_T], default: _T | None = None) -> _T:
    found = document.get(name, default)
    found = default if found is None else found
    if kind is float and isinstance(found, int) and not isinstance(found, bool):
        found = float(found)
    if not isinstance(found, kind) or isinstance(found, bool) or not found > 0:  # type: ignore[operator]
        raise CheckpointError(f"config: {name} is {found!r}: expected a positive {kind.__name__}")
    return found
