"""The model's weights, arranged as the functions need them. Linear weights are (out, in)."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from stoop_worker.kernels.moe import ExpertLinear
from stoop_worker.models.blocks.layers import MLP, AnyLinear, LayerNorm, Linear
from stoop_worker.models.moondream.config import ModelConfig
from stoop_worker.models.moondream.config_parts import TauConfig, TextConfig
from stoop_worker.models.moondream.shapes import check_experts, check_shapes

__all__ = [
    "Attention",
    "MoE",
    "RegionWeights",
    "Tau",
    "TextBlock",
    "TextWeights",
    "VisionBlock",
    "VisionWeights",
    "Weights",
]


@dataclass(frozen=True, slots=True)
class Tau:
    """The temperature of attention: `w` (2 heads, 3 dim) holds wq above wv, `alpha` (heads,) the pace of positions."""

    w: Tensor
    alpha: Tensor
    rule: TauConfig


@dataclass(frozen=True, slots=True)
class MoE:
    """A mixture of experts: `router` gives a logit an expert, and the `chosen` best of them make the output."""

    router: Linear
    up: ExpertLinear
    down: ExpertLinear
    chosen: int


@dataclass(frozen=True, slots=True)
class Attention:
    """`qkv` makes queries, keys and values in this order; `proj` takes the heads' outputs."""

    qkv: AnyLinear
    proj: AnyLinear
    tau: Tau | None = None


@dataclass(frozen=True, slots=True)
class VisionBlock:
    """A pre-norm transformer block."""

    ln1: LayerNorm
    attn: Attention
    ln2: LayerNorm
    mlp: MLP


@dataclass(frozen=True, slots=True)
class VisionWeights:
    """`pos_emb` is (1, patches, dim); `proj_mlp` projects global and local features to an image embedding."""

    patch_emb: Linear
    pos_emb: Tensor
    blocks: tuple[VisionBlock, ...]
    post_ln: LayerNorm
    proj_mlp: MLP


@dataclass(frozen=True, slots=True)
class TextBlock:
    """A parallel block: one norm feeds both attention and MLP, or mixture of experts."""

    ln: LayerNorm
    attn: Attention
    mlp: MLP | MoE


@dataclass(frozen=True, slots=True)
class TextWeights:
    """`wte` (vocabulary, dim) embeds tokens; `lm_head` is not tied to it."""

    wte: Tensor
    blocks: tuple[TextBlock, ...]
    post_ln: LayerNorm
    lm_head: Linear


@dataclass(frozen=True, slots=True)
class RegionWeights:
    """Fourier features (inputs, half the feature dim), encoders and decoders of coordinates and sizes.

    The decoders read the residual stream after `norms`, applied one after another.
    """

    coord_features: Tensor
    coord_encoder: Linear
    coord_decoder: MLP | Linear
    size_features: Tensor
    size_encoder: Linear
    size_decoder: MLP | Linear
    norms: tuple[LayerNorm, ...] = ()


@dataclass(frozen=True, slots=True)
class Weights:
    """All of the model's tensors, on one device and of one dtype."""

    text: TextWeights
    vision: VisionWeights
    region: RegionWeights

    @classmethod
    def of(cls, tensors: Mapping[str, Tensor], config: ModelConfig) -> "Weights":
        """Arrange tensors by their names in the checkpoint; only the small ones of tau are copied, to lie together.

        Raises `CheckpointError` naming a tensor that is missing, unknown, of the wrong shape, or in float8 without
        its scale.
        """
        check_shapes({name: tuple(tensor.shape) for name, tensor in tensors.items()}, config)
        check_experts(tensors)
        named = _Named(tensors)
        text, vision = config.text, config.vision
        return cls(
            text=TextWeights(
                wte=tensors["text.wte"],
                blocks=tuple(named.text_block(i, text) for i in range(text.n_layers)),
                post_ln=named.layer_norm("text.post_ln"),
                lm_head=named.linear("text.lm_head"),
            ),
            vision=VisionWeights(
                patch_emb=named.linear("vision.patch_emb"),
                pos_emb=tensors["vision.pos_emb"],
                blocks=tuple(named.vision_block(f"vision.blocks.{i}") for i in range(vision.enc_n_layers)),
                post_ln=named.layer_norm("vision.post_ln"),
                proj_mlp=named.mlp("vision.proj_mlp"),
            ),
            region=named.region(config),
        )


@dataclass(frozen=True, slots=True)
class _Named:
    tensors: Mapping[str, Tensor]

    def linear(self, name: str) -> Linear:
        return Linear(self.tensors[f"{name}.weight"], self.tensors[f"{name}.bias"])

    def layer_norm(self, name: str) -> LayerNorm:
        return LayerNorm(self.tensors[f"{name}.weight"], self.tensors[f"{name}.bias"])

    def mlp(self, name: str) -> MLP:
        return MLP(self.linear(f"{name}.fc1"), self.linear(f"{name}.fc2"))

    def attention(self, name: str) -> Attention:
        return Attention(self.linear(f"{name}.qkv"), self.linear(f"{name}.proj"))

    def text_block(self, layer: int, text: TextConfig) -> TextBlock:
        name = f"text.blocks.{layer}"
        attention = self.attention(f"{name}.attn")
        if text.tau is not None:
            attention = replace(attention, tau=self.tau(f"{name}.attn.tau", text.tau))
        mixed = text.moe is not None and layer >= text.moe.start_layer
        feed_forward = self.moe(name, text) if mixed else self.mlp(f"{name}.mlp")
        return TextBlock(self.layer_norm(f"{name}.ln"), attention, feed_forward)

    def tau(self, name: str, rule: TauConfig) -> Tau:
        joined = torch.cat((self.tensors[f"{name}.wq"], self.tensors[f"{name}.wv"]))
        return Tau(joined, self.tensors[f"{name}.alpha"], rule)

    def moe(self, name: str, text: TextConfig) -> MoE:
        assert text.moe is not None
        up, down = (
            ExpertLinear(self.tensors[f"{name}.mlp.{fc}.weight"], self.tensors.get(f"{name}.moe_quant.{kind}_scale"))
            for fc, kind in (("fc1", "up"), ("fc2", "down"))
        )
        return MoE(self.linear(f"{name}.mlp.router"), up, down, text.moe.experts_per_token)

    def vision_block(self, name: str) -> VisionBlock:
        ln1, ln2 = self.layer_norm(f"{name}.ln1"), self.layer_norm(f"{name}.ln2")
        return VisionBlock(ln1, self.attention(f"{name}.attn"), ln2, self.mlp(f"{name}.mlp"))

    def region(self, config: ModelConfig) -> RegionWeights:
        decoder: Callable[[str], MLP | Linear] = self.linear
        norms: tuple[LayerNorm, ...] = ()
        if config.region.inner_dim is not None:
            decoder = self.mlp
        else:
            before = (self.layer_norm("text.post_ln"),) if config.region.norm_input == "post_ln" else ()
            norms = (*before, self.layer_norm("region.ln"))
        return RegionWeights(
            coord_features=self.tensors["region.coord_features"],
            coord_encoder=self.linear("region.coord_encoder"),
            coord_decoder=decoder("region.coord_decoder"),
            size_features=self.tensors["region.size_features"],
            size_encoder=self.linear("region.size_encoder"),
            size_decoder=decoder("region.size_decoder"),
            norms=norms,
        )
