"""The tensors of the vision encoder: their names in a checkpoint, and their shapes.

V vision dim, F inner dim of its MLP, M channels of merged patches, C the text model's dim.
"""

from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass

from torch import Tensor

from stoop_worker.errors import CheckpointError
from stoop_worker.models.blocks.layers import MLP, LayerNorm, Linear
from stoop_worker.models.qwen_vl.config import QwenVLConfig, VisionConfig

__all__ = ["Merger", "VisionBlock", "VisionWeights", "present_name", "split_shapes"]

_Shapes = Mapping[str, tuple[int, ...]]
_VISUAL = "visual."


@dataclass(frozen=True, slots=True)
class VisionBlock:
    """A pre-norm block with full attention."""

    norm1: LayerNorm
    qkv: Linear
    out: Linear
    norm2: LayerNorm
    mlp: MLP


@dataclass(frozen=True, slots=True)
class Merger:
    """Makes one embedding of neighbouring patches: a norm, Linear, GELU, Linear."""

    norm: LayerNorm
    fc1: Linear
    fc2: Linear


@dataclass(frozen=True, slots=True)
class VisionWeights:
    """`patch` takes 3 x patch x patch values; `positions` is (grid * grid, V); `deep` are the mergers of deepstack."""

    patch: Linear
    positions: Tensor
    blocks: tuple[VisionBlock, ...]
    merger: Merger
    deep: tuple[Merger, ...]

    @classmethod
    def of(cls, tensors: MutableMapping[str, Tensor], config: VisionConfig) -> "VisionWeights":
        """Take the tensors of the vision encoder out of the mapping."""

        def linear(name: str) -> Linear:
            return Linear(tensors.pop(f"{_VISUAL}{name}.weight"), tensors.pop(f"{_VISUAL}{name}.bias"))

        def norm(name: str) -> LayerNorm:
            return LayerNorm(tensors.pop(f"{_VISUAL}{name}.weight"), tensors.pop(f"{_VISUAL}{name}.bias"))

        def merger(name: str) -> Merger:
            return Merger(norm(f"{name}.norm"), linear(f"{name}.linear_fc1"), linear(f"{name}.linear_fc2"))

        def block(name: str) -> VisionBlock:
            return VisionBlock(
                norm(f"{name}.norm1"),
                linear(f"{name}.attn.qkv"),
                linear(f"{name}.attn.proj"),
                norm(f"{name}.norm2"),
                MLP(linear(f"{name}.mlp.linear_fc1"), linear(f"{name}.mlp.linear_fc2")),
            )

        return cls(
            patch=_folded(linear("patch_embed.proj")),
            positions=tensors.pop(f"{_VISUAL}pos_embed.weight"),
            blocks=tuple(block(f"blocks.{layer}") for layer in range(config.layers)),
            merger=merger("merger"),
            deep=tuple(merger(f"deepstack_merger_list.{index}") for index in range(len(config.deep))),
        )


def present_name(stored: str) -> tuple[str, bool] | None:
    """Return the name without the prefixes of released files, of which older ones have fewer; None for a buffer."""
    if stored.endswith("inv_freq"):
        return None
    return stored.removeprefix("model.").removeprefix("language_model."), False


def split_shapes(shapes: _Shapes, config: QwenVLConfig) -> dict[str, tuple[int, ...]]:
    """Check the vision encoder's names and shapes, and return those of the text model; raises `CheckpointError`."""
    expected = _shapes(config.vision)
    found = {name: shape for name, shape in shapes.items() if name.startswith(_VISUAL)}
    for what, names in (("lacks", expected.keys() - found.keys()), ("has unknown", found.keys() - expected.keys())):
        if names:
            named = ", ".join(sorted(names)[:8])
            raise CheckpointError(f"the checkpoint {what} tensors: {named} ({len(names)} in all)")
    for name, shape in expected.items():
        if found[name] != shape:
            raise CheckpointError(f"tensor {name} has shape {found[name]}: its config says {shape}")
    return {name: shape for name, shape in shapes.items() if name not in found}


def _shapes(config: VisionConfig) -> dict[str, tuple[int, ...]]:
    dim, inner, merged, side = config.dim, config.ff_dim, config.merged_dim, config.rule.patch
    linears: dict[str, tuple[int, ...]] = {"patch_embed.proj": (dim, 3, 2, side, side)}
    norms: dict[str, int] = {}
    for layer in range(config.layers):
        name = f"blocks.{layer}"
        norms |= {f"{name}.norm1": dim, f"{name}.norm2": dim}
        linears |= {f"{name}.attn.qkv": (3 * dim, dim), f"{name}.attn.proj": (dim, dim)}
        linears |= {f"{name}.mlp.linear_fc1": (inner, dim), f"{name}.mlp.linear_fc2": (dim, inner)}
    for name, width in [
        ("merger", dim),
        *((f"deepstack_merger_list.{index}", merged) for index in range(len(config.deep))),
    ]:
        norms[f"{name}.norm"] = width
        linears |= {f"{name}.linear_fc1": (merged, merged), f"{name}.linear_fc2": (config.out_dim, merged)}
    shapes: dict[str, tuple[int, ...]] = {f"{name}.weight": shape for name, shape in linears.items()}
    shapes |= {f"{name}.bias": shape[:1] for name, shape in linears.items()}
    shapes |= {f"{name}.{part}": (width,) for name, width in norms.items() for part in ("weight", "bias")}
    shapes["pos_embed.weight"] = (config.grid**2, dim)
    return {_VISUAL + name: shape for name, shape in shapes.items()}


def _folded(patch: Linear) -> Linear:
    """Add the two temporal halves of the patch embedding, because an image is the same at both times."""
    weight = patch.weight
    return Linear(weight.float().sum(dim=2).flatten(1).to(weight.dtype), patch.bias)
