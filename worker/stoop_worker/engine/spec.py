"""The sizes of a model, from which the engine derives its memory, graphs and plans."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from stoop_worker.audio import MelGeometry
from stoop_worker.engine.request import Task
from stoop_worker.images import Preparation

__all__ = ["KVSpec", "Spec"]


@dataclass(frozen=True, slots=True)
class KVSpec:
    """The size of one position's keys and values: layers, key heads, and channels per head."""

    layers: int
    heads: int
    head_dim: int


@dataclass(frozen=True, slots=True)
class Spec:
    """A model's sizes and capabilities.

    `axes`: axes of a position. `values`: columns that its own heads produce besides the token. `fed_values`: columns of
    its widest `ValuesInput`. `media_width`: positions of a usual medium, for which prefills are captured; 0 if it takes
    no media. `encode_budget`: the highest cost of media that one step should encode on this device. `preparation`: the
    way the front cuts or resizes images, or makes frames of sound; None leaves images as they are. `deep`: sets of
    features beside a medium's embeddings, for the first layers. `rule`: the numbers of a skill's `rule`. `sampling`:
    the makers' defaults, by the names of `Sampling`. `query_heads`: heads of queries; None if rows attend by other page
    lists than the batch's, so that no library can plan their attention. `joins_decodes`: the most decodes that a
    step with media computes as rows of its prefill, so that the weights are read once.
    """

    kv: KVSpec
    dim: int
    vocab_size: int
    max_context: int
    tasks: tuple[type[Task], ...]
    axes: int = 1
    values: int = 0
    fed_values: int = 0
    media_width: int = 0
    encode_budget: int = 64
    preparation: Preparation | MelGeometry = None
    deep: int = 0
    rule: int = 0
    sampling: Mapping[str, float] = field(default_factory=dict)
    query_heads: int | None = None
    joins_decodes: int = 0

    @property
    def given_dim(self) -> int:
        """Columns of what `encode` writes for a position: an embedding, and the `deep` sets of features beside it."""
        return self.dim * (1 + self.deep)
