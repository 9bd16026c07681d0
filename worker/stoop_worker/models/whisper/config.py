"""The sizes of a Whisper, from its config.json and its generation_config.json."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from stoop_worker.errors import CheckpointError
from stoop_worker.models.loading.config_file import ids_of, number_in

__all__ = ["Generation", "WhisperConfig", "read_generation", "read_whisper_config"]

_ALIGNMENT = 32  # the memory takes a whole number of pages of any size that divides this

_ENGLISH_SIZE = 51_864  # the vocabulary of every released model that knows only English


@dataclass(frozen=True, slots=True)
class WhisperConfig:
    """An encoder of `states` states per window, and a decoder of up to `most_tokens` tokens."""

    dim: int
    mels: int
    encoder_layers: int
    encoder_heads: int
    encoder_ff_dim: int
    layers: int
    heads: int
    ff_dim: int
    vocab_size: int
    states: int
    most_tokens: int

    @property
    def head_dim(self) -> int:
        """Channels per head of the decoder."""
        return self.dim // self.heads

    @property
    def memory(self) -> int:
        """The positions that a window takes in the KV cache: its states, and padding to whole pages."""
        return -(-self.states // _ALIGNMENT) * _ALIGNMENT

    @property
    def max_context(self) -> int:
        """The positions of the longest sequence: a window and all tokens."""
        return self.memory + self.most_tokens


@dataclass(frozen=True, slots=True)
class Generation:
    """The ids that are never drawn, and those that are not drawn first; None where the file does not name them.

    `multilingual` is False if the model knows only English.
    `latest_start` is the highest first timestamp, in steps of 0.02 s. `alignment_heads` are the (layer, head) pairs
    whose attention follows the sound.
    """

    multilingual: bool
    suppressed: tuple[int, ...] | None
    suppressed_first: tuple[int, ...] | None
    latest_start: int
    alignment_heads: tuple[tuple[int, int], ...]


def read_whisper_config(document: Mapping[str, Any]) -> WhisperConfig:
    """Read the sizes; raises `CheckpointError` for a field that is missing, or that needs an unsupported feature."""
    if document.get("activation_function", "gelu") != "gelu":
        raise CheckpointError("config: activation_function must be gelu for a Whisper")
    if document.get("scale_embedding"):
        raise CheckpointError("config: scale_embedding is true, and this family has only false")
    config = WhisperConfig(
        dim=number_in(document, "d_model", int),
        mels=number_in(document, "num_mel_bins", int),
        encoder_layers=number_in(document, "encoder_layers", int),
        encoder_heads=number_in(document, "encoder_attention_heads", int),
        encoder_ff_dim=number_in(document, "encoder_ffn_dim", int),
        layers=number_in(document, "decoder_layers", int),
        heads=number_in(document, "decoder_attention_heads", int),
        ff_dim=number_in(document, "decoder_ffn_dim", int),
        vocab_size=number_in(document, "vocab_size", int),
        states=number_in(document, "max_source_positions", int, 1500),
        most_tokens=number_in(document, "max_target_positions", int, 448),
    )
    if config.dim % config.heads or config.dim % config.encoder_heads:
        raise CheckpointError(f"config: d_model is {config.dim}, which the attention heads cannot share evenly")
    return config


def read_generation(document: Mapping[str, Any], config: WhisperConfig) -> Generation:
    """Read a generation_config.json, which may be empty; raises `CheckpointError` for invalid alignment heads."""
    return Generation(
        multilingual=bool(document.get("is_multilingual", config.vocab_size != _ENGLISH_SIZE)),
        suppressed=_ids(document, "suppress_tokens"),
        suppressed_first=_ids(document, "begin_suppress_tokens"),
        latest_start=number_in(document, "max_initial_timestamp_index", int, 50),
        alignment_heads=_alignment_heads(document.get("alignment_heads"), config),
    )


def _ids(document: Mapping[str, Any], name: str) -> tuple[int, ...] | None:
    found = document.get(name)
    return None if found is None else ids_of(found, name)


def _alignment_heads(found: object, config: WhisperConfig) -> tuple[tuple[int, int], ...]:
    """Return the pairs; without any, all heads of the decoder's upper half."""
    if found is None:
        return tuple(
            (layer, head) for layer in range(config.layers // 2, config.layers) for head in range(config.heads)
        )
    pairs = tuple(tuple(pair) if isinstance(pair, list) else () for pair in found) if isinstance(found, list) else ()
    known = {(layer, head) for layer in range(config.layers) for head in range(config.heads)}
    if not pairs or not set(pairs) <= known:
        raise CheckpointError("generation_config: alignment_heads must be pairs of a decoder layer and a head")
    return tuple((layer, head) for layer, head in pairs)
