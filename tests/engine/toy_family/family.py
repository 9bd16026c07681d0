"""The toy behind the engine's port."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn.functional import embedding, linear

from stoop_worker.engine.config import EngineConfig
from stoop_worker.engine.device.sampler import sample_tokens
from stoop_worker.engine.graphs import Graphs
from stoop_worker.engine.model import KVSpec, Prepared, Spec
from stoop_worker.engine.request import Media, Query, Request, Sampling
from stoop_worker.engine.tensors import PENDING, FedRows, Given, HeadReads, KVView, LastHeads
from stoop_worker.kernels.rms_norm import rms_norm
from stoop_worker.kernels.rotate_write import Places, rotation_table
from tests.engine.toy_family import text
from tests.engine.toy_family.prompt import build_prompt, grid_of
from tests.engine.toy_family.sizes import (
    AXES,
    CONTEXT,
    DIM,
    EPSILON,
    HEAD_DIM,
    KEY_HEADS,
    LAYERS,
    PATCH,
    THETA,
    VOCABULARY,
)
from tests.engine.toy_family.skill import QuerySkill
from tests.engine.toy_family.weights import toy_weights

__all__ = ["ToyFamily"]


class ToyFamily:
    """Implements `Model`."""

    spec = Spec(
        kv=KVSpec(LAYERS, KEY_HEADS, HEAD_DIM),
        dim=DIM,
        vocab_size=VOCABULARY,
        max_context=CONTEXT,
        tasks=(Query,),
        axes=AXES,
        media_width=4,
    )
    name = "toy"
    digest = "toy"
    untrained = True

    def __init__(self, dtype: torch.dtype = torch.float64, device: str = "cpu") -> None:
        self.device = torch.device(device)
        self.dtype = dtype
        self._weights = toy_weights(dtype, device)
        self._rotations_SF2 = rotation_table(CONTEXT, HEAD_DIM, THETA, self.device, dtype=dtype)
        self._axis_F = torch.arange(HEAD_DIM // 2, dtype=torch.int32, device=self.device) % AXES

    def prepare(self, request: Request) -> Prepared:
        assert isinstance(request.task, Query)
        prompt = build_prompt(request.task.question, request.media)
        return Prepared(tuple(prompt.inputs), QuerySkill(request), request.media, prompt.positions)

    def compiles(self, request: Request) -> bool:
        return False

    def read_vocabulary(self) -> None:
        """It follows no grammar."""

    def rehearsal(self, config: EngineConfig) -> list[Request]:
        return [Request("warm-up", Query("1 2 3"), (), Sampling(temperature=0.0, max_tokens=2))]

    def capture(self, graphs: Graphs, usual_cost: int) -> None:
        """Its encoder is one product: there is nothing to gain."""

    def encode(self, media: Sequence[Media], out_NC: Tensor, on_progress: Callable[[], None]) -> None:
        row = 0
        for image in media:
            rows, columns = grid_of(image)  # type: ignore[arg-type]
            pixels = torch.tensor(image.pixels, device=self.device).to(self.dtype) / 255
            grid = pixels[: rows * PATCH, : columns * PATCH].unflatten(1, (columns, PATCH)).unflatten(0, (rows, PATCH))
            patches_NK = grid.transpose(1, 2).flatten(2).flatten(0, 1)
            out_NC[row : row + rows * columns] = linear(patches_NK, self._weights.patches)
            row += rows * columns
            on_progress()

    def feed(self, fed: FedRows, last: LastHeads) -> Tensor:
        ids_B = fed.ids_B
        if fed.seats_B is not None:
            ids_B = torch.where(ids_B == PENDING, last.tokens_S[fed.seats_B], ids_B)
        return embedding(ids_B, self._weights.embeddings)

    def forward(self, x_TC: Tensor, kv: KVView, given: Given | None, wanted_R: Tensor | None) -> Tensor:
        if given is not None:
            x_TC = given.place(x_TC)
        places = Places(kv.positions_T, self._rotations_SF2, kv.slots_T, self._axis_F)
        return text.forward(x_TC, kv, places, self._weights, wanted_R)

    def step(self, x_BC: Tensor, kv: KVView) -> Tensor:
        return self.forward(x_BC, kv, None, None)

    def read(self, hidden_RC: Tensor, reads: HeadReads, last: LastHeads) -> Tensor:
        normed_RC = rms_norm(hidden_RC, self._weights.norm, epsilon=EPSILON)
        return reads.keep(sample_tokens(linear(normed_RC, self._weights.head), reads.sampling), None, last)
