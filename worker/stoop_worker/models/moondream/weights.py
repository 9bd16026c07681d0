"""The model's weights by name and shape. Linear weights are (out, in)."""

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from stoop_worker.errors import CheckpointError
from stoop_worker.models.blocks.layers import MLP, AnyLinear, LayerNorm, Linear
from stoop_worker.models.moondream.config import ModelConfig

__all__ = [
    "Attention",
    "RegionWeights",
    "Shapes",
    "TextBlock",
    "TextWeights",
    "VisionBlock",
    "VisionWeights",
    "Weights",
    "check_shapes",
    "tensor_shapes",
]


@dataclass(frozen=True, slots=True)
class Attention:
    """`qkv` makes queries, keys and values in this order; `proj` takes the heads' outputs."""

    qkv: AnyLinear
    proj: AnyLinear


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
    """A parallel block: one norm feeds both attention and MLP."""

    ln: LayerNorm
    attn: Attention
    mlp: MLP


@dataclass(frozen=True, slots=True)
class TextWeights:
    """`wte` (vocabulary, dim) embeds tokens; `lm_head` is not tied to it."""

    wte: Tensor
    blocks: tuple[TextBlock, ...]
    post_ln: LayerNorm
    lm_head: Linear


@dataclass(frozen=True, slots=True)
class RegionWeights:
    """Fourier features (inputs, half the feature dim), encoders and decoders of coordinates and sizes."""

    coord_features: Tensor
    coord_encoder: Linear
    coord_decoder: MLP
    size_features: Tensor
    size_encoder: Linear
    size_decoder: MLP


@dataclass(frozen=True, slots=True)
class Weights:
    """All of the model's tensors, on one device and of one dtype."""

    text: TextWeights
    vision: VisionWeights
    region: RegionWeights

    @classmethod
    def of(cls, tensors: Mapping[str, Tensor], config: ModelConfig) -> "Weights":
        """Arrange tensors by their names in the checkpoint; they are kept as they are, not copied.

        Raises `CheckpointError` naming a tensor that is missing, not known, or of the wrong shape.
        """
        check_shapes({name: tuple(tensor.shape) for name, tensor in tensors.items()}, config)
        named = _Named(tensors)
        text, vision = config.text, config.vision
        return cls(
            text=TextWeights(
                wte=tensors["text.wte"],
                blocks=tuple(named.text_block(f"text.blocks.{i}") for i in range(text.n_layers)),
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
            region=RegionWeights(
                coord_features=tensors["region.coord_features"],
                coord_encoder=named.linear("region.coord_encoder"),
                coord_decoder=named.mlp("region.coord_decoder"),
                size_features=tensors["region.size_features"],
                size_encoder=named.linear("region.size_encoder"),
                size_decoder=named.mlp("region.size_decoder"),
            ),
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

    def text_block(self, name: str) -> TextBlock:
        return TextBlock(self.layer_norm(f"{name}.ln"), self.attention(f"{name}.attn"), self.mlp(f"{name}.mlp"))

    def vision_block(self, name: str) -> VisionBlock:
        ln1, ln2 = self.layer_norm(f"{name}.ln1"), self.layer_norm(f"{name}.ln2")
        return VisionBlock(ln1, self.attention(f"{name}.attn"), ln2, self.mlp(f"{name}.mlp"))


Shapes = dict[str, tuple[int, ...]]


def check_shapes(found: Mapping[str, tuple[int, ...]], config: ModelConfig) -> None:
    """Raise `CheckpointError` unless names and shapes are exactly those of the config."""
    expected = tensor_shapes(config)
    for name, shape in expected.items():
        if name not in found:
            raise CheckpointError(f"tensor {name} {shape} is missing")
        if found[name] != shape:
            raise CheckpointError(f"tensor {name}: the config expects {shape}, the checkpoint has {found[name]}")
    unknown = sorted(set(found) - set(expected))
    if unknown:
        raise CheckpointError(f"tensors the config does not know: {', '.join(unknown[:5])} ({len(unknown)} in all)")


def tensor_shapes(config: ModelConfig) -> Shapes:
    """Return the name and shape of every tensor of the model."""
    text, vision, region = config.text, config.vision, config.region
    shapes: Shapes = {"text.wte": (text.vocab_size, text.dim), "vision.pos_emb": (1, vision.patches, vision.enc_dim)}
    for i in range(vision.enc_n_layers):
        block = f"vision.blocks.{i}"
        shapes |= _norm(f"{block}.ln1", vision.enc_dim) | _norm(f"{block}.ln2", vision.enc_dim)
        shapes |= _attention(f"{block}.attn", vision.enc_dim)
        shapes |= _mlp(f"{block}.mlp", vision.enc_dim, vision.enc_ff_dim, vision.enc_dim)
    shapes |= _linear("vision.patch_emb", vision.enc_dim, vision.patch_dim) | _norm("vision.post_ln", vision.enc_dim)
    shapes |= _mlp("vision.proj_mlp", 2 * vision.enc_dim, vision.proj_inner_dim, vision.proj_out_dim)
    for i in range(text.n_layers):
        block = f"text.blocks.{i}"
        shapes |= _norm(f"{block}.ln", text.dim) | _attention(f"{block}.attn", text.dim)
        shapes |= _mlp(f"{block}.mlp", text.dim, text.ff_dim, text.dim)
    shapes |= _norm("text.post_ln", text.dim) | _linear("text.lm_head", text.vocab_size, text.dim)
    for kind, inputs, features, out in (
        ("coord", 1, region.coord_feat_dim, region.coord_out_dim),
        ("size", 2, region.size_feat_dim, region.size_out_dim),
    ):
        shapes[f"region.{kind}_features"] = (inputs, features // 2)
        shapes |= _linear(f"region.{kind}_encoder", region.dim, features)
        shapes |= _mlp(f"region.{kind}_decoder", region.dim, region.inner_dim, out)
    return shapes


def _linear(name: str, out_dim: int, in_dim: int) -> Shapes:
    return {f"{name}.weight": (out_dim, in_dim), f"{name}.bias": (out_dim,)}


def _norm(name: str, dim: int) -> Shapes:
    return {f"{name}.weight": (dim,), f"{name}.bias": (dim,)}


def _attention(name: str, dim: int) -> Shapes:
    return _linear(f"{name}.qkv", 3 * dim, dim) | _linear(f"{name}.proj", dim, dim)


def _mlp(name: str, in_dim: int, inner_dim: int, out_dim: int) -> Shapes:
    return _linear(f"{name}.fc1", inner_dim, in_dim) | _linear(f"{name}.fc2", out_dim, inner_dim)
