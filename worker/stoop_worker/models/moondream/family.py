"""Moondream 2 and 3 behind the engine's port.

T positions packed over sequences, B rows of a decode, R rows to read with the heads, N rows given as embeddings,
P embeddings of an image, C model dim, V columns of head values.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import torch
from torch import Tensor

from stoop_worker.engine.config import EngineConfig
from stoop_worker.engine.device.sampler import sample_tokens
from stoop_worker.engine.graphs import Graphs
from stoop_worker.engine.inputs import Input, MediaInput, ValuesInput
from stoop_worker.engine.model import KVSpec, Prepared, Spec
from stoop_worker.engine.positions import INDEX
from stoop_worker.engine.request import Caption, Chat, Detect, Gaze, Media, Point, Query, Request, Sampling, images_of
from stoop_worker.engine.tensors import PENDING, FedRows, Given, HeadReads, KVView, LastHeads
from stoop_worker.errors import ConfigError
from stoop_worker.images import Image, check_resizer, cut, select_tiling
from stoop_worker.kernels.backend import has_triton
from stoop_worker.kernels.paged_attention import HEAD_DIMS
from stoop_worker.kernels.rotate_write import rotation_table
from stoop_worker.models.blocks.token_embedding import embed_tokens
from stoop_worker.models.loading.download import Download, Source
from stoop_worker.models.loading.options import AdapterOptions, LoadOptions
from stoop_worker.models.moondream import decode_text, region, text, vision
from stoop_worker.models.moondream.adapters import (
    AdapterBank,
    AdapterPositions,
    Adapters,
    ResidentAdapters,
    read_adapters,
)
from stoop_worker.models.moondream.chat import as_query
from stoop_worker.models.moondream.checks import check_task
from stoop_worker.models.moondream.decode_lora import RowAdapters
from stoop_worker.models.moondream.encoder import Encoder
from stoop_worker.models.moondream.fp8 import in_fp8
from stoop_worker.models.moondream.lora import NO_CORRECTIONS, Corrections
from stoop_worker.models.moondream.model import Moondream, load_found
from stoop_worker.models.moondream.prompt import build_prompt
from stoop_worker.models.moondream.skills import start_skill
from stoop_worker.models.moondream.values import COLUMNS, FED_COLUMNS, Fed

__all__ = ["MoondreamFamily", "open_model"]

# crops in one step: a GPU runs large steps well; on a CPU nothing is published during a large step
_CROPS = {"cuda": 64, "cpu": 16}


def open_model(found: Source, options: LoadOptions, download: Download) -> "MoondreamFamily":
    """Load a model from the files found; raises `CheckpointError` or `ConfigError`."""
    model = load_found(found, options, download)
    check_resizer(model.config.vision.resize)
    return MoondreamFamily(model, fp8_linears=options.fp8_linears, adapters=_adapters(options.adapters, model))


def _adapters(options: AdapterOptions | None, model: Moondream) -> Adapters:
    if options is None:
        return AdapterBank()
    text = model.config.text
    if options.resident is None:
        return read_adapters(options.folder, text, device=model.device, dtype=model.dtype)
    like = model.weights.text.wte
    return ResidentAdapters(options.folder, text, count=options.resident, rank=options.rank, like=like)


class MoondreamFamily:
    """A loaded Moondream, for one engine.

    `fp8_linears` computes the large products of images and prompts in float8 (e4m3): faster, and less exact. `fused`
    decodes with half as many products; it is on by default if the kernels for it run. With `adapters` a position has a
    second axis, the number of its sequence's adapter.
    """

    def __init__(
        self,
        model: Moondream,
        *,
        fp8_linears: bool = False,
        fused: bool | None = None,
        adapters: Adapters | None = None,
    ) -> None:
        self._model = model
        self._adapters: Adapters = AdapterBank() if adapters is None else adapters
        _check_adapters(self._adapters, fp8_linears=fp8_linears)
        self._weights = in_fp8(model.weights) if fp8_linears else model.weights
        config = model.config
        self._rotations_SF2 = rotation_table(
            config.text.max_context,
            config.text.rotary_dim,
            config.text.rope_theta,
            model.device,
            dtype=model.dtype,
        )
        self._encoder = Encoder(self._weights.vision, config.vision, device=model.device, dtype=model.dtype)
        self._merged = decode_text.merge(model.weights.text) if _fuses(model, fused) else ()
        self._stack = decode_text.stack_of(self._merged)
        if model.device.type == "cuda":
            torch.cuda.empty_cache()  # memory freed by merging becomes room for pages, which are counted next
        self.spec = replace(
            _spec(model),
            axes=2 if self._adapters else 1,
            joins_decodes=0 if fp8_linears else decode_text.joined_by_prefills(model.weights.text),
        )

    @property
    def name(self) -> str:
        """The model's name in results and logs."""
        return self._model.name

    @property
    def digest(self) -> str:
        """A digest that no other model has."""
        return self._model.digest

    @property
    def untrained(self) -> bool:
        """True if the weights are random, so that answers are noise."""
        return self._model.untrained

    @property
    def device(self) -> torch.device:
        """The device of the weights."""
        return self._model.device

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of activations."""
        return self._model.dtype

    def prepare(self, request: Request) -> Prepared:
        """Lay out the task after its image; the first token and the image attend to each other in both directions."""
        config, tokenizer = self._model.config, self._model.tokenizer
        request = as_query(request)
        check_task(request, config)
        prefix = config.text.prefix_attn
        prompt = build_prompt(request.task, has_image=bool(request.media), ids=config.tokenizer, tokenizer=tokenizer)
        constraint = self._model.grammars.start(request.sampling.grammar)
        skill = start_skill(request, ids=config.tokenizer, tokenizer=tokenizer, constraint=constraint)
        chosen = self._adapters.take(request.adapter)  # last, because nothing after it may fail
        # keys and values depend on the adapter, so the first input, on which all others depend, carries its key
        image: list[Input] = [
            MediaInput(chosen.digest(image.digest), prefix, vision.crops_to_encode(image, config.vision))
            for image in images_of(request.media)
        ]
        if chosen.number and not image:
            prompt[0] = ValuesInput(Fed.START.value, (float(chosen.key),))
        return Prepared(
            inputs=(*image, *prompt),
            positions=AdapterPositions(number=chosen.number) if self._adapters else INDEX,
            skill=skill,
            media=request.media,
            two_way=prefix if image else 0,
            on_end=partial(self._adapters.give_back, chosen.number),
        )

    def compiles(self, request: Request) -> bool:
        """Return whether the answer's grammar is new."""
        return not self._model.grammars.knows(request.sampling.grammar)

    def read_vocabulary(self) -> None:
        """Read the vocabulary for JSON schemas."""
        self._model.grammars.read_vocabulary()

    def rehearsal(self, config: EngineConfig) -> list[Request]:
        """Return captions of grey images; on a GPU they fill a step, to check that a full step fits into memory."""
        geometry = self._model.config.vision.geometry
        side = 2 * geometry.crop_size
        by_crops = config.encode_budget // (1 + select_tiling(side, side, geometry).count)
        by_tokens = config.token_budget // (self.spec.media_width + 5)
        count = 1 if self.device.type == "cpu" else max(1, min(config.max_batch, by_crops, by_tokens))
        sampling = Sampling(temperature=0.0, max_tokens=4)
        return [Request(f"warm-up {n}", Caption(), (self._grey(n, side),), sampling) for n in range(count)]

    def capture(self, graphs: Graphs, usual_cost: int) -> None:
        """Capture the vision encoder for the usual numbers of crops."""
        self._encoder.capture(graphs, usual_cost)

    def encode(self, media: Sequence[Media], out_NC: Tensor, on_progress: Callable[[], None]) -> None:
        """Write each image's embeddings after the embedding of the first token."""
        embeddings_BPC = self._encoder.encode(images_of(media), on_progress)
        out_BPC = out_NC.view(len(media), self.spec.media_width, -1)
        out_BPC[:, 0] = self._model.weights.text.wte[self._model.config.tokenizer.bos_id]
        out_BPC[:, 1:] = embeddings_BPC

    def feed(self, fed: FedRows, last: LastHeads) -> Tensor:
        """Embed tokens, coordinates and sizes."""
        weights = self._model.weights
        x_BC = embed_tokens(fed, last, weights.text.wte)
        if fed.kinds_B is None or fed.values_BW is None:
            return x_BC
        ids_B, coordinates_B, sizes_B2 = fed.ids_B, fed.values_BW[:, 0], fed.values_BW
        if fed.seats_B is not None:
            pending_B = ids_B == PENDING
            ids_B = torch.where(pending_B, last.tokens_S[fed.seats_B], ids_B)
            values_BV = last.values_SV[fed.seats_B].double()
            coordinates_B = torch.where(pending_B, values_BV[:, 0], coordinates_B)
            sizes_B2 = torch.where(pending_B[:, None], values_BV[:, 1:3], sizes_B2)
        marked_B = (fed.kinds_B == Fed.COORDINATE_IF_MARKED) & (ids_B == self._model.config.tokenizer.coord_id)
        is_coordinate_B = marked_B | (fed.kinds_B == Fed.COORDINATE)
        is_size_B = fed.kinds_B == Fed.SIZE
        if self._adapters:
            first_C = weights.text.wte[self._model.config.tokenizer.bos_id]
            x_BC = torch.where((fed.kinds_B == Fed.START)[:, None], first_C, x_BC)
        x_BC = torch.where(is_coordinate_B[:, None], region.write_coordinate(coordinates_B, weights.region), x_BC)
        return torch.where(is_size_B[:, None], region.write_size(sizes_B2, weights.region), x_BC)

    def forward(self, x_TC: Tensor, kv: KVView, given: Given | None, wanted_R: Tensor | None) -> Tensor:
        """Run the text model on images and prompts."""
        if given is not None:
            x_TC = given.place(x_TC)
        kv, corrections = self._corrections(kv, x_TC)
        return text.forward(
            x_TC, kv, self._weights.text, self._rotations_SF2, wanted_R=wanted_R, corrections=corrections
        )

    def step(self, x_BC: Tensor, kv: KVView) -> Tensor:
        """Run the text model on one position per sequence."""
        if self._merged:
            kv, numbers_B = self._split(kv)
            if numbers_B is None:
                hidden_BC = decode_text.in_one_launch(x_BC, kv, self._stack, self._rotations_SF2)
                if hidden_BC is not None:
                    return hidden_BC
            adapters = RowAdapters(self._adapters.blocks, numbers_B, self._adapters.ranks)
            return decode_text.step(x_BC, kv, self._merged, self._rotations_SF2, adapters=adapters)
        kv, corrections = self._corrections(kv, x_BC)
        return text.forward(x_BC, kv, self._model.weights.text, self._rotations_SF2, corrections=corrections)

    def read(self, hidden_RC: Tensor, reads: HeadReads, last: LastHeads) -> Tensor:
        """Sample tokens; read coordinates and sizes if any row needs them."""
        weights = self._model.weights
        logits_RV = text.logits(hidden_RC, weights.text)
        ids_R = sample_tokens(logits_RV, reads.sampling)
        if not reads.values:
            return reads.keep(ids_R, None, last)
        coordinates_R = region.read_coordinate(region.coordinate_logits(hidden_RC, weights.region))
        sizes_R2 = region.read_size(region.size_logits(hidden_RC, weights.region))
        ids = self._model.config.tokenizer
        continues_R = (logits_RV[:, ids.coord_id] - logits_RV[:, ids.eos_id]).float()
        found_RV = torch.cat((coordinates_R[:, None], sizes_R2, continues_R[:, None]), dim=1)
        return reads.keep(ids_R, found_RV, last)

    def _corrections(self, kv: KVView, like: Tensor) -> tuple[KVView, Corrections]:
        kv, numbers_T = self._split(kv)
        return kv, NO_CORRECTIONS if numbers_T is None else self._adapters.corrections(numbers_T, like)

    def _split(self, kv: KVView) -> tuple[KVView, Tensor | None]:
        """Split the axes of the positions: the place in the sequence, and the number of its adapter, if any."""
        if not self._adapters:
            return kv, None
        positions_T, numbers_T = kv.positions_T.t().contiguous()
        return replace(kv, positions_T=positions_T), numbers_T

    def _grey(self, level: int, side: int) -> Media:
        image = Image.of(np.full((side, side, 3), level, dtype=np.uint8))
        return image if self.spec.preparation is None else cut(image, self._model.config.vision.geometry)


def _spec(model: Moondream) -> Spec:
    sizes, geometry, device = model.config.text, model.config.vision.geometry, model.device.type
    return Spec(
        kv=KVSpec(sizes.n_layers, sizes.n_heads, sizes.head_dim),
        dim=sizes.dim,
        vocab_size=sizes.vocab_size,
        max_context=sizes.max_context,
        tasks=(Query, Caption, Detect, Point, Gaze, Chat),
        values=COLUMNS,
        fed_values=FED_COLUMNS,
        media_width=sizes.prefix_attn,
        encode_budget=_CROPS[device],
        # a GPU cuts the images itself, except where libvips resizes them
        preparation=geometry if device == "cpu" or geometry.resize == "libvips" else None,
        query_heads=sizes.n_heads,
    )


def _check_adapters(adapters: Adapters, *, fp8_linears: bool) -> None:
    if adapters and fp8_linears:
        raise ConfigError("--adapters correct products of the checkpoint's own dtype: leave --fp8-linears off")


def _fuses(model: Moondream, fused: bool | None) -> bool:
    if fused is not None:
        return fused
    taken = model.config.text.head_dim in HEAD_DIMS and model.dtype is not torch.float64
    return model.device.type == "cuda" and has_triton() and taken
