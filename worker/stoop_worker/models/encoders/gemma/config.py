"""The sizes of an embeddinggemma, from its config.json."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from stoop_worker.errors import CheckpointError
from stoop_worker.models.loading.config_file import number_in

__all__ = ["GemmaConfig", "read_config"]

# fields with values that this code can compute
_REQUIRED: Mapping[str, tuple[object, ...]] = {
    "use_bidirectional_attention": (True,),
    "hidden_activation": ("gelu_pytorch_tanh",),
    "attention_bias": (False, None),
    "attn_logit_softcapping": (None,),
    "rope_scaling": (None,),
}
_LOCAL, _FULL = "sliding_attention", "full_attention"
_FULL_EVERY = 6  # layers, where a file does not list them


@dataclass(frozen=True, slots=True)
class GemmaConfig:
    """An encoder with sandwich norms and grouped heads.

    `windows` has the distance that each layer's tokens see to either side; None is the whole text. `thetas` has the
    rope theta of each layer. `scale` multiplies the products of queries and keys.
    """

    dim: int
    ff_dim: int
    heads: int
    key_heads: int
    head_dim: int
    vocab_size: int
    max_context: int
    epsilon: float
    scale: float
    windows: tuple[int | None, ...]
    thetas: tuple[float, ...]

    @property
    def layers(self) -> int:
        """The number of layers."""
        return len(self.windows)


def read_config(document: Mapping[str, Any]) -> GemmaConfig:
    """Read the sizes; raises `CheckpointError` for a field that is missing, or has an unsupported value."""
    for name, accepted in _REQUIRED.items():
        if document.get(name) not in accepted:
            raise CheckpointError(f"config: {name} is {document.get(name)!r}, and this family has only {accepted[0]!r}")
    kinds = _layer_kinds(document)
    thetas = _thetas(document)
    window = number_in(document, "sliding_window", int) // 2
    heads, key_heads = number_in(document, "num_attention_heads", int), number_in(document, "num_key_value_heads", int)
    if heads % key_heads:
        raise CheckpointError(f"config: {heads} query heads cannot share {key_heads} key heads evenly")
    return GemmaConfig(
        dim=number_in(document, "hidden_size", int),
        ff_dim=number_in(document, "intermediate_size", int),
        heads=heads,
        key_heads=key_heads,
        head_dim=number_in(document, "head_dim", int),
        vocab_size=number_in(document, "vocab_size", int),
        max_context=number_in(document, "max_position_embeddings", int),
        epsilon=number_in(document, "rms_norm_eps", float),
        scale=number_in(document, "query_pre_attn_scalar", float) ** -0.5,
        windows=tuple(window if kind == _LOCAL else None for kind in kinds),
        thetas=tuple(thetas[kind] for kind in kinds),
    )


def _layer_kinds(document: Mapping[str, Any]) -> list[str]:
    layers = number_in(document, "num_hidden_layers", int)
    kinds = document.get("layer_types") or [_LOCAL if (layer + 1) % _FULL_EVERY else _FULL for layer in range(layers)]
    if len(kinds) != layers or set(kinds) - {_LOCAL, _FULL}:
        raise CheckpointError(f"config: layer_types must name {layers} layers, each {_LOCAL} or {_FULL}")
    return list(kinds)


def _thetas(document: Mapping[str, Any]) -> Mapping[str, float]:
    """Return theta by the kind of layer; newer files keep them in `rope_parameters`."""
    rope = document.get("rope_parameters") or {}
    older = {_FULL: ("rope_theta", 1e6), _LOCAL: ("rope_local_base_freq", 1e4)}
    return {
        kind: number_in(rope[kind], "rope_theta", float) if kind in rope else number_in(document, name, float, usual)
        for kind, (name, usual) in older.items()
    }
