"""The model port, which every generative family implements. The engine knows no model; a model knows no schedule.

`stoop_worker/models/README.md` explains the functions one by one. All of them run on the engine's thread, except
`prepare` and `compiles`, which any thread may call. Letters: T positions packed over sequences, R rows whose heads are
read, B rows of a decode, N rows whose embeddings are given, C model dim, V vocabulary.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from stoop_worker.engine.config import EngineConfig
from stoop_worker.engine.graphs import Graphs
from stoop_worker.engine.inputs import Input
from stoop_worker.engine.positions import INDEX, Positions
from stoop_worker.engine.request import Media, Request, RequestInvalid
from stoop_worker.engine.skill import Skill
from stoop_worker.engine.spec import KVSpec, Spec
from stoop_worker.engine.tensors import Device, DType, FedRows, Given, HeadReads, KVView, LastHeads, Tensor

__all__ = ["KVSpec", "LoadedModel", "Model", "Prepared", "RequestInvalid", "Spec"]


@dataclass(frozen=True, slots=True)
class Prepared:
    """A request in the model's terms.

    `media` belong to the `MediaInput`s among `inputs`, in the same order. The first `two_way` positions attend to each
    other in both directions; 0 is plain causal attention. `on_end` is called once, when the request has ended.
    """

    inputs: tuple[Input, ...]
    skill: Skill
    media: tuple[Media, ...] = ()
    positions: Positions = INDEX
    two_way: int = 0
    on_end: Callable[[], None] = lambda: None


class LoadedModel(Protocol):
    """The facts about a loaded model that do not depend on how it runs."""

    @property
    def name(self) -> str:
        """The name in results and logs."""

    @property
    def digest(self) -> str:
        """A digest that no other model shares."""

    @property
    def untrained(self) -> bool:
        """True if the weights are made up, so that answers are noise."""

    @property
    def device(self) -> Device:
        """The device that holds the weights."""

    @property
    def dtype(self) -> DType:
        """The dtype of activations."""


class Model(LoadedModel, Protocol):
    """A loaded model, ready to run in one engine.

    `digest` distinguishes models in cache keys; `untrained` marks made-up weights. Activations, keys and values have
    the type `dtype`.
    """

    @property
    def spec(self) -> Spec:
        """The model's sizes and capabilities."""

    def prepare(self, request: Request) -> Prepared:
        """Turn a request for one of the spec's tasks into inputs; raises `RequestInvalid`. Any thread may call it."""

    def compiles(self, request: Request) -> bool:
        """Return whether `prepare` would compile a grammar, which can take a second. Any thread may call it."""

    def read_vocabulary(self) -> None:
        """Read what the first JSON schema needs, which stalls all threads for seconds. Any thread may call it."""

    def rehearsal(self, config: EngineConfig) -> list[Request]:
        """Return warm-up requests that together fill one step of this engine."""

    def capture(self, graphs: Graphs, usual_cost: int) -> None:
        """Capture `encode` for media that cost up to `usual_cost` together; called once, before anything else."""

    def encode(self, media: Sequence[Media], out_NC: Tensor, on_progress: Callable[[], None]) -> None:
        """Write the embeddings of media to `out_NC`, one after another, each as wide as its input.

        It does not wait for the device. It calls `on_progress` between parts of the work that is not captured.
        """

    def feed(self, fed: FedRows, last: LastHeads) -> Tensor:
        """Return the embeddings of one input per row, x_BC; pending inputs are read from `last`."""

    def forward(self, x_TC: Tensor, kv: KVView, given: Given | None, wanted_R: Tensor | None) -> Tensor:
        """Run many positions, with the `given` embeddings in their rows; return the wanted hidden states, hidden_RC.

        Without `wanted_R` it returns all rows.
        """

    def step(self, x_BC: Tensor, kv: KVView) -> Tensor:
        """Run one position of each sequence; return hidden_BC."""

    def read(self, hidden_RC: Tensor, reads: HeadReads, last: LastHeads) -> Tensor:
        """Sample tokens, read the model's own heads if `reads.values` is set, and return `reads.keep(...)` of both."""
