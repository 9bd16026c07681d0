"""Qwen3-VL behind the engine's port: the decoder's functions, and images.

T positions packed over sequences, R rows to read, N rows given as embeddings, C model dim, F frequencies.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from stoop_worker.engine.config import EngineConfig
from stoop_worker.engine.graphs import Graphs
from stoop_worker.engine.media import whole_images_of
from stoop_worker.engine.model import Prepared
from stoop_worker.engine.request import Chat, Media, Message, Part, Request, Sampling
from stoop_worker.engine.tensors import Given, KVView
from stoop_worker.images import Image
from stoop_worker.kernels.rotate_write import Places
from stoop_worker.models.decoder import text
from stoop_worker.models.decoder.family import DecoderFamily, check_options, check_request
from stoop_worker.models.decoder.prompt import chat_ids
from stoop_worker.models.loading.download import Download, Source
from stoop_worker.models.loading.options import LoadOptions
from stoop_worker.models.qwen_vl.encoder import ImageEncoder
from stoop_worker.models.qwen_vl.model import QwenVL, load_qwen_vl
from stoop_worker.models.qwen_vl.prompt import lay_out, messages_of, positions_of

__all__ = ["QwenVLFamily", "axis_of_frequencies", "open_model"]

_USUAL_WIDTH = 300  # of a picture of 640 x 480
_BUDGETS = {"cuda": 64, "cpu": 8}


def open_model(found: Source, options: LoadOptions, download: Download) -> "QwenVLFamily":
    """Load a model from the files found; raises `CheckpointError` or `ConfigError`."""
    check_options(options)
    model = load_qwen_vl(found, options)
    return QwenVLFamily(model, max_context=options.max_context)


class QwenVLFamily(DecoderFamily):
    """A loaded Qwen3-VL, for one engine and contexts of up to `max_context`; `fused` as in `DecoderFamily`."""

    def __init__(self, model: QwenVL, *, max_context: int = 32_768, fused: bool | None = None) -> None:
        super().__init__(model.decoder, max_context=max_context, fused=fused)
        self._config = model.config
        self._encoder = ImageEncoder(model.vision, model.config.vision)
        self._axis_F = axis_of_frequencies(model.config.sections).to(self.device)
        self.spec = replace(
            self.spec,
            axes=3,
            media_width=_USUAL_WIDTH,
            encode_budget=_BUDGETS[self.device.type],
            preparation=model.config.vision.rule,
            deep=len(model.config.vision.deep),
        )

    def prepare(self, request: Request) -> Prepared:
        """Lay the chat out by the model's template, with its images where the template places them."""
        check_request(request)
        rule = self._config.vision.rule
        ids = chat_ids(request, self._model.language, messages_of)
        inputs = lay_out(ids, request.media, self._config.image_id, rule)
        positions = positions_of(inputs, request.media, rule)
        return Prepared(tuple(inputs), self._skill(request), request.media, positions)

    def rehearsal(self, config: EngineConfig) -> list[Request]:
        """Return chats, one of them about a grey image."""
        side = self._config.vision.rule.cell * 4
        grey = Image.of(np.full((side, side, 3), 128, dtype=np.uint8))
        chat = Chat((Message("user", (Part.IMAGE, "warm up")),))
        seen = Request("warm-up image", chat, (grey,), Sampling(temperature=0.0, max_tokens=4))
        return [seen, *super().rehearsal(config)]

    def capture(self, graphs: Graphs, usual_cost: int) -> None:
        """From now on, capture each size of image when it is seen again."""
        self._encoder.capture(graphs)

    def encode(self, media: Sequence[Media], out_NC: Tensor, on_progress: Callable[[], None]) -> None:
        """Write each image's embeddings, with the features of deepstack beside them."""
        self._encoder.encode(whole_images_of(media), out_NC, on_progress)

    def forward(self, x_TC: Tensor, kv: KVView, given: Given | None, wanted_R: Tensor | None) -> Tensor:
        """Run the decoder on texts and images."""
        deep: list[Tensor] = []
        if given is not None:
            x_TC, deep = self._place(x_TC, given)
        return text.forward(x_TC, kv, self._places(kv), self._model.weights, wanted_R=wanted_R, deep=deep)

    def _places(self, kv: KVView) -> Places:
        return Places(kv.positions_T, self._rotations_SF2, kv.slots_T, self._axis_F)

    def _place(self, x_TC: Tensor, given: Given) -> tuple[Tensor, list[Tensor]]:
        """Put the embeddings into their rows; return also the features of each set, 0 where there is no image."""
        first, *sets = given.embeddings_NC.chunk(1 + self.spec.deep, dim=1)
        padded_TC = x_TC.new_zeros(x_TC.shape)
        deep = [replace(given, embeddings_NC=each).place(padded_TC.clone()) for each in sets]
        return replace(given, embeddings_NC=first).place(x_TC), deep


def axis_of_frequencies(sections: tuple[int, int, int]) -> Tensor:
    """Return the axis of each frequency, (F,) int32: time, height and width in turn, then time for the rest. Height and
    width have the numbers of frequencies in their sections.
    """
    axis_F = torch.zeros(sum(sections), dtype=torch.int32)
    for axis in (1, 2):
        axis_F[axis : 3 * sections[axis] : 3] = axis
    return axis_F
