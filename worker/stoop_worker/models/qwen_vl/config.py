"""The sizes of a Qwen3-VL, from its config.json and preprocessor_config.json."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from stoop_worker.errors import CheckpointError
from stoop_worker.images import PatchRule
from stoop_worker.models.decoder.config import DecoderConfig, read_decoder_config

__all__ = ["QwenVLConfig", "VisionConfig", "read_config"]

_DEFAULT = PatchRule()


@dataclass(frozen=True, slots=True)
class VisionConfig:
    """The vision encoder. `deep` are the blocks whose features are added to the text model's first layers."""

    dim: int
    ff_dim: int
    layers: int
    heads: int
    out_dim: int
    grid: int
    deep: tuple[int, ...]
    rule: PatchRule

    @property
    def merged_dim(self) -> int:
        """Channels of the patches that become one embedding."""
        return self.dim * self.rule.merge**2


@dataclass(frozen=True, slots=True)
class QwenVLConfig:
    """A Qwen3-VL. `sections` are the frequencies of time, height and width; `image_id` stands for an image."""

    text: DecoderConfig
    vision: VisionConfig
    sections: tuple[int, int, int]
    image_id: int


def read_config(document: Mapping[str, Any], preprocessor: Mapping[str, Any]) -> QwenVLConfig:
    """Read the sizes; raises `CheckpointError`."""
    tied = document.get("tie_word_embeddings", False)
    text_section = {"tie_word_embeddings": tied, **_section(document, "text_config")}
    return QwenVLConfig(
        text=read_decoder_config(text_section),
        vision=_vision(_section(document, "vision_config"), preprocessor),
        sections=_sections(text_section),
        image_id=_whole(document, "image_token_id"),
    )


def _vision(section: Mapping[str, Any], preprocessor: Mapping[str, Any]) -> VisionConfig:
    if section.get("hidden_act", "gelu_pytorch_tanh") != "gelu_pytorch_tanh" or section.get("in_channels", 3) != 3:
        raise CheckpointError("config: the vision encoder must have tanh-GELU and three channels")
    if section.get("temporal_patch_size", 2) != 2:
        raise CheckpointError("config: the vision encoder must have a temporal_patch_size of 2")
    positions = _whole(section, "num_position_embeddings")
    grid = round(positions**0.5)
    if grid * grid != positions:
        raise CheckpointError(f"config: num_position_embeddings is {positions}, which is not a square")
    size = preprocessor.get("size") or {}
    most = int(size.get("longest_edge", _DEFAULT.most_pixels))
    rule = PatchRule(
        patch=_whole(section, "patch_size"),
        merge=_whole(section, "spatial_merge_size"),
        min_pixels=int(size.get("shortest_edge", _DEFAULT.min_pixels)),
        # the released limit allows photos of 16,000 embeddings
        max_pixels=min(most, _DEFAULT.max_pixels),
        most_pixels=min(most, _DEFAULT.most_pixels),
    )
    return VisionConfig(
        dim=_whole(section, "hidden_size"),
        ff_dim=_whole(section, "intermediate_size"),
        layers=_whole(section, "depth"),
        heads=_whole(section, "num_heads"),
        out_dim=_whole(section, "out_hidden_size"),
        grid=grid,
        deep=tuple(section.get("deepstack_visual_indexes") or ()),
        rule=rule,
    )


def _sections(text: Mapping[str, Any]) -> tuple[int, int, int]:
    rope = {**(text.get("rope_scaling") or {}), **(text.get("rope_parameters") or {})}
    found = rope.get("mrope_section")
    if not (isinstance(found, list) and len(found) == 3) or not rope.get("mrope_interleaved", False):
        raise CheckpointError("config: rope must have an mrope_section of three axes, interleaved")
    return found[0], found[1], found[2]


def _section(document: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = document.get(name)
    if not isinstance(found, Mapping):
        raise CheckpointError(f"config: {name} must be an object")
    return found


def _whole(document: Mapping[str, Any], name: str) -> int:
    found = document.get(name)
    if not isinstance(found, int) or isinstance(found, bool) or found < 1:
        raise CheckpointError(f"config: {name} is {found!r}: expected a positive int")
    return found
