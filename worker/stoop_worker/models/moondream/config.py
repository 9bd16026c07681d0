"""The model's sizes, token ids and prompt templates: the only place that holds them.

The defaults are those of Moondream 2, release 2025-06-21.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from stoop_worker.errors import CheckpointError
from stoop_worker.images.tiling import CropGeometry
from stoop_worker.models.loading.config_file import fields_of, ids_of, read_document
from stoop_worker.models.moondream.config_check import check
from stoop_worker.models.moondream.sections import sections_of

__all__ = [
    "Affixes",
    "ModelConfig",
    "RegionConfig",
    "Templates",
    "TextConfig",
    "TokenizerConfig",
    "VisionConfig",
]


@dataclass(frozen=True, slots=True)
class TextConfig:
    """The text model. The first `prefix_attn` positions of a sequence with an image see each other."""

    dim: int = 2048
    ff_dim: int = 8192
    n_layers: int = 24
    vocab_size: int = 51200
    max_context: int = 2048
    n_heads: int = 32
    n_kv_heads: int = 32
    prefix_attn: int = 730
    group_size: int | None = None
    rope_theta: float = 10000.0

    @property
    def head_dim(self) -> int:
        """Channels of one attention head."""
        return self.dim // self.n_heads

    @property
    def rotary_dim(self) -> int:
        """Channels of a head that are rotated: the first half."""
        return self.head_dim // 2


@dataclass(frozen=True, slots=True)
class VisionConfig:
    """The vision encoder and the projection into the text model's space."""

    enc_dim: int = 1152
    enc_patch_size: int = 14
    enc_n_layers: int = 27
    enc_ff_dim: int = 4304
    enc_n_heads: int = 16
    proj_out_dim: int = 2048
    crop_size: int = 378
    in_channels: int = 3
    max_crops: int = 12
    overlap_margin: int = 4
    proj_inner_dim: int = 8192

    @property
    def grid(self) -> int:
        """Patches along a crop's side."""
        return self.crop_size // self.enc_patch_size

    @property
    def patches(self) -> int:
        """Patches of a crop, and embeddings of an image."""
        return self.grid**2

    @property
    def patch_dim(self) -> int:
        """Values of one patch."""
        return self.in_channels * self.enc_patch_size**2

    @property
    def head_dim(self) -> int:
        """Channels of one attention head."""
        return self.enc_dim // self.enc_n_heads

    @property
    def geometry(self) -> CropGeometry:
        """The crop sizes, for cutting images."""
        return CropGeometry(self.crop_size, self.enc_patch_size, self.overlap_margin, self.max_crops)


@dataclass(frozen=True, slots=True)
class RegionConfig:
    """Coordinates and sizes: `coord_out_dim` bins of a coordinate, `size_out_dim` bins of width and height together."""

    dim: int = 2048
    coord_feat_dim: int = 256
    coord_out_dim: int = 1024
    size_feat_dim: int = 512
    size_out_dim: int = 2048
    inner_dim: int = 8192
    group_size: int | None = None


@dataclass(frozen=True, slots=True)
class Affixes:
    """The ids before and after what the user wrote."""

    prefix: tuple[int, ...]
    suffix: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Templates:
    """Prompt templates as ids; `caption` has one whole prompt a length."""

    caption: Mapping[str, tuple[int, ...]] = field(
        default_factory=lambda: {
            "short": (1, 32708, 2, 12492, 3),
            "normal": (1, 32708, 2, 6382, 3),
            "long": (1, 32708, 2, 4059, 3),
        }
    )
    query: Affixes = Affixes((1, 15381, 2), (3,))
    detect: Affixes = Affixes((1, 7235, 476, 2), (3,))
    point: Affixes = Affixes((1, 2581, 2), (3,))


@dataclass(frozen=True, slots=True)
class TokenizerConfig:
    """Control ids and templates. `query_double_suffix`: a query without reasoning ends with its suffix twice.

    So it does in Moondream's released code, hence in its published scores.
    """

    bos_id: int = 0
    eos_id: int = 0
    answer_id: int = 3
    thinking_id: int = 4
    coord_id: int = 5
    size_id: int = 6
    start_ground_points_id: int = 7
    end_ground_id: int = 9
    query_double_suffix: bool = True
    templates: Templates = field(default_factory=Templates)

    @property
    def control_ids(self) -> tuple[int, ...]:
        """The ids that carry no text, apart from bos and eos."""
        ground = (self.start_ground_points_id, self.end_ground_id)
        return (self.answer_id, self.thinking_id, self.coord_id, self.size_id, *ground)


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """Everything there is to know of a model but its weights; raises `CheckpointError` if it cannot be."""

    text: TextConfig = field(default_factory=TextConfig)
    vision: VisionConfig = field(default_factory=VisionConfig)
    region: RegionConfig = field(default_factory=RegionConfig)
    tokenizer: TokenizerConfig = field(default_factory=TokenizerConfig)

    def __post_init__(self) -> None:
        check(self)

    @classmethod
    def read(cls, path: Path) -> "ModelConfig":
        """Read a config.json."""
        return cls.of(read_document(path))

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> "ModelConfig":
        """Build from the sections text, vision, region and tokenizer, at the top or under "config".

        A released Moondream 2 has none of them (its model_type is moondream1): it gets the defaults. A field that a
        section leaves out gets its default too; a field that is not known is an error.
        """
        sections = sections_of(document)
        if sections is None:
            return cls()
        tokenizer = fields_of(TokenizerConfig, sections["tokenizer"], "tokenizer")
        if "templates" in tokenizer:
            tokenizer["templates"] = _templates(tokenizer["templates"])
        return cls(
            text=TextConfig(**fields_of(TextConfig, sections["text"], "text")),
            vision=VisionConfig(**fields_of(VisionConfig, sections["vision"], "vision")),
            region=RegionConfig(**fields_of(RegionConfig, sections["region"], "region")),
            tokenizer=TokenizerConfig(**tokenizer),
        )

    def document(self) -> dict[str, Any]:
        """Return what `of` reads, ready for JSON."""
        return asdict(self)


def _templates(section: object) -> Templates:
    where = "tokenizer.templates"
    given = fields_of(Templates, section, where)
    missing = sorted({known.name for known in fields(Templates)} - set(given))
    if missing:
        raise CheckpointError(f"config: {where} lacks {', '.join(missing)}")
    caption = given["caption"]
    if not isinstance(caption, Mapping) or not caption:
        raise CheckpointError(f"config: {where}.caption must map each length to its ids")
    return Templates(
        caption={str(length): ids_of(ids, f"{where}.caption.{length}") for length, ids in caption.items()},
        query=_affixes(given["query"], f"{where}.query"),
        detect=_affixes(given["detect"], f"{where}.detect"),
        point=_affixes(given["point"], f"{where}.point"),
    )


def _affixes(section: object, where: str) -> Affixes:
    given = fields_of(Affixes, section, where)
    return Affixes(*(ids_of(given.get(side, ()), f"{where}.{side}") for side in ("prefix", "suffix")))
