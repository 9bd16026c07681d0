"""The parts of a configuration: sizes, token ids and prompt templates; the only place that holds them.

The defaults of the fields are those of Moondream 2, release 2025-06-21.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields

from stoop_worker.engine.request import Query, Task
from stoop_worker.images.tiling import CropGeometry

__all__ = [
    "Affixes",
    "MoEConfig",
    "RegionConfig",
    "TauConfig",
    "Templates",
    "TextConfig",
    "TokenizerConfig",
    "VisionConfig",
]


@dataclass(frozen=True, slots=True)
class MoEConfig:
    """The mixture of experts that replaces the MLP in every layer from `start_layer` on.

    The corrections that adapters make to experts are multiplied by `adapter_scale`.
    """

    num_experts: int = 64
    start_layer: int = 4
    experts_per_token: int = 8
    expert_inner_dim: int = 1024
    adapter_scale: float = 1.0


@dataclass(frozen=True, slots=True)
class TauConfig:
    """The learned temperature of attention.

    `gelu` is "erf" or "tanh". `position_dtype` is "float32" or "bfloat16"; the latter rounds positions over 256, as
    vLLM does.
    """

    gelu: str = "erf"
    position_dtype: str = "float32"


@dataclass(frozen=True, slots=True)
class TextConfig:
    """The text model. The first `prefix_attn` positions of a sequence with an image see each other.

    Moondream 3 has `moe` and `tau`, Moondream 2 neither.
    """

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
    moe: MoEConfig | None = None
    tau: TauConfig | None = None

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
    """The vision encoder and the projection into the text model's space.

    `resize` is "pillow" or "libvips". `normalise` is "stepwise" or "once": a pixel's value is rounded to the model's
    dtype after each of three steps, as in Moondream's reference, or only at the end, as in vLLM.
    """

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
    resize: str = "pillow"
    normalise: str = "stepwise"

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
        return CropGeometry(self.crop_size, self.enc_patch_size, self.overlap_margin, self.max_crops, self.resize)


@dataclass(frozen=True, slots=True)
class RegionConfig:
    """Coordinates and sizes: `coord_out_dim` bins of a coordinate, `size_out_dim` bins of width and height together.

    The decoders are MLPs of `inner_dim`. Without one, each is a linear layer after a norm, whose input `norm_input` is
    "raw", the residual stream, or "post_ln", the stream after the text model's last norm.
    """

    dim: int = 2048
    coord_feat_dim: int = 256
    coord_out_dim: int = 1024
    size_feat_dim: int = 512
    size_out_dim: int = 2048
    inner_dim: int | None = 8192
    norm_input: str = "raw"
    group_size: int | None = None


@dataclass(frozen=True, slots=True)
class Affixes:
    """The ids before and after the user's text."""

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
    """Control ids, templates, and the rules that differ between releases.

    `query_double_suffix`: a query without reasoning ends with its suffix twice, as in Moondream 2's released code and
    hence its published scores. `reasoning_after_suffix`: the thinking id follows the suffix, and does not replace it.
    `suppress`: a phase cannot end by the other phase's id. `answer_ends`: the answer id ends an answer.
    `stop_rule`: "token" stops detect and point where the likeliest of all tokens is the end; "pair" where the end is
    likelier than the coordinate id; "pair_after_first" stops before the first object by "token", then by "pair".
    `reasoning`: a query without the field `reasoning` is answered with reasoning.
    `gaze_as_point`: a gaze is asked for as the point of a "gaze" that belongs to the eye, and not in plain words.
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
    reasoning_after_suffix: bool = True
    suppress: bool = True
    answer_ends: bool = False
    stop_rule: str = "token"
    reasoning: bool = False
    gaze_as_point: bool = False
    templates: Templates = field(default_factory=Templates)

    def reasons(self, task: Task) -> bool:
        """Return whether a task is answered with reasoning."""
        if not isinstance(task, Query):
            return False
        return self.reasoning if task.reasoning is None else task.reasoning

    @property
    def ends(self) -> tuple[int, ...]:
        """The ids that end an answer."""
        return (self.eos_id, self.answer_id) if self.answer_ends else (self.eos_id,)

    @property
    def vocabulary(self) -> tuple[object, ...]:
        """All that depends on the tokenizer: the ids and the templates. Both released models have the same."""
        return (*(getattr(self, each.name) for each in fields(self) if each.name.endswith("_id")), self.templates)

    @property
    def control_ids(self) -> tuple[int, ...]:
        """The ids that carry no text, apart from bos and eos."""
        ground = (self.start_ground_points_id, self.end_ground_id)
        return (self.answer_id, self.thinking_id, self.coord_id, self.size_id, *ground)
