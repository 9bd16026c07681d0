"""Whisper behind the engine's port.

T positions packed over sequences, B rows of a decode, R rows to read, N rows of windows, C model dim.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import embedding

from stoop_worker.audio import Mel, MelGeometry
from stoop_worker.engine.config import EngineConfig
from stoop_worker.engine.device.sampler import sample_tokens
from stoop_worker.engine.graphs import Graphs
from stoop_worker.engine.model import KVSpec, Prepared, Spec
from stoop_worker.engine.positions import Positions
from stoop_worker.engine.request import Media, Request, Sampling, Transcribe
from stoop_worker.engine.tensors import FedRows, Given, HeadReads, KVView, LastHeads
from stoop_worker.errors import ConfigError
from stoop_worker.kernels.paged_attention import PagedLayout
from stoop_worker.kernels.rotate_write import Places
from stoop_worker.models.blocks.token_embedding import embed_tokens
from stoop_worker.models.loading.download import Download, Source
from stoop_worker.models.loading.options import LoadOptions
from stoop_worker.models.whisper import decoder, encoder
from stoop_worker.models.whisper.alignment import Alignment, align
from stoop_worker.models.whisper.memory import reach, token_rows
from stoop_worker.models.whisper.model import Whisper, load_whisper
from stoop_worker.models.whisper.prompt import build_prompt
from stoop_worker.models.whisper.rules import Rule, Rules
from stoop_worker.models.whisper.skill import TranscribeSkill

__all__ = ["WhisperFamily", "open_model"]

_WINDOWS = {"cpu": 1, "cuda": 16}  # windows that one step should encode at most


def open_model(found: Source, options: LoadOptions, download: Download) -> "WhisperFamily":
    """Load a model from the files found; raises `CheckpointError` or `ConfigError`."""
    if options.fp8_linears:
        raise ConfigError("--fp8-linears is for Moondream and XLM-RoBERTa: leave it off")
    if options.adapters is not None:
        raise ConfigError("--adapters is for Moondream: leave it off")
    model = load_whisper(found, options)
    if options.max_context < model.config.max_context:
        raise ConfigError(
            f"--max-context is {options.max_context}: a window and its text take {model.config.max_context} positions"
        )
    return WhisperFamily(model)


class WhisperFamily:
    """A loaded Whisper, for one engine."""

    def __init__(self, model: Whisper) -> None:
        config = model.config
        self._model = model
        self._rules = Rules(model.vocabulary, config.vocab_size, model.generation.latest_start, model.device)
        self._rotations_SF2 = _no_rotations(config.most_tokens, config.head_dim, model.device, model.dtype)
        self.spec = Spec(
            kv=KVSpec(config.layers, config.heads, config.head_dim),
            dim=config.dim,
            vocab_size=config.vocab_size,
            max_context=config.max_context,
            tasks=(Transcribe,),
            values=2,
            encode_budget=_WINDOWS[model.device.type],
            preparation=MelGeometry(config.mels),
            rule=len(Rule._fields),
        )
        self.name = model.name
        self.digest = model.digest
        self.untrained = model.untrained
        self.device = model.device
        self.dtype = model.dtype

    def prepare(self, request: Request) -> Prepared:
        """Lay out the window, the text before it, and the start of the transcript."""
        model = self._model
        prompt = build_prompt(request, model.config, model.vocabulary, model.tokenizer)
        skill = TranscribeSkill(
            request,
            prompt.task,
            model.vocabulary,
            model.tokenizer,
            most=model.config.most_tokens // 2,
            align=partial(self._align, request.media),
        )
        return Prepared(prompt.inputs, skill, request.media, Positions(delta=-model.config.memory))

    def compiles(self, request: Request) -> bool:
        """Return False: a transcript follows no grammar."""
        return False

    def read_vocabulary(self) -> None:
        """Read nothing: a transcript follows no grammar."""

    def rehearsal(self, config: EngineConfig) -> list[Request]:
        """Return windows of silence; on a GPU they fill a step, to check that a full step fits into memory."""
        self._check_pages(config.page_size)
        sizes = self._model.config
        by_tokens = config.token_budget // (sizes.memory + 1)
        count = 1 if self.device.type == "cpu" else max(1, min(config.max_batch, config.encode_budget, by_tokens))
        sampling = Sampling(temperature=0.0, max_tokens=4)
        silences = (np.full((sizes.mels, 2 * sizes.states), -0.1 * n, dtype=np.float32) for n in range(count))
        return [Request(f"warm-up {n}", Transcribe(), (Mel.of(each),), sampling) for n, each in enumerate(silences)]

    def capture(self, graphs: Graphs, usual_cost: int) -> None:
        """Capture nothing: a window takes much longer than its launches."""

    def encode(self, media: Sequence[Media], out_NC: Tensor, on_progress: Callable[[], None]) -> None:
        """Write each window's states, and zeros up to whole pages."""
        sizes = self._model.config
        states_NSC = encoder.encode(self._frames(media), self._model.weights, sizes.encoder_heads, on_progress)
        out_NC.copy_(encoder.padded(states_NSC, sizes.memory))

    def feed(self, fed: FedRows, last: LastHeads) -> Tensor:
        """Embed tokens, without their positions."""
        return embed_tokens(fed, last, self._model.weights.tokens)

    def forward(self, x_TC: Tensor, kv: KVView, given: Given | None, wanted_R: Tensor | None) -> Tensor:
        """Remember windows and run tokens; without `wanted_R` it returns the tokens' rows alone."""
        # a captured prefill has room for given rows, but no window and no numbers on the host
        if given is None or not kv.layout.cu_seqlens:
            hidden_TC = self._run(x_TC[: len(kv.slots_T)], kv)
            return hidden_TC if wanted_R is None else hidden_TC[wanted_R]
        decoder.remember(given.embeddings_NC, _rows(kv, given.rows_N, kv.layout), self._model.weights)
        tokens = token_rows(kv.layout, self._model.config, self.device)
        if not len(tokens.rows_K):
            return x_TC[:0]
        hidden_KC = self._run(x_TC[tokens.rows_K], _rows(kv, tokens.rows_K, tokens.layout))
        return hidden_KC if wanted_R is None else hidden_KC[tokens.places_T[wanted_R]]

    def step(self, x_BC: Tensor, kv: KVView) -> Tensor:
        """Run the decoder on one position per sequence."""
        return self.forward(x_BC, kv, None, None)

    def read(self, hidden_RC: Tensor, reads: HeadReads, last: LastHeads) -> Tensor:
        """Draw ids by the rules; return with each its log-probability, and the probability of no speech."""
        raw_RV = decoder.logits(hidden_RC, self._model.weights)
        logits_RV = self._rules.apply(raw_RV, reads.rules_RK, last.tokens_S[reads.seats_R])
        ids_R = sample_tokens(logits_RV, reads.sampling)
        if not reads.values:
            return reads.keep(ids_R, None, last)
        logprobs_R = logits_RV.log_softmax(dim=-1).gather(1, ids_R[:, None])[:, 0]
        return reads.keep(ids_R, torch.stack((logprobs_R, self._rules.no_speech(raw_RV)), dim=1).float(), last)

    def _run(self, x_TC: Tensor, kv: KVView) -> Tensor:
        weights = self._model.weights
        x_TC = x_TC + embedding(kv.positions_T, weights.positions)
        places = Places(kv.positions_T, self._rotations_SF2, kv.slots_T)
        return decoder.forward(x_TC, kv, places, reach(kv.layout, self._model.config), weights)

    @torch.inference_mode()
    def _align(self, media: Sequence[Media], before: Sequence[int], text: Sequence[int]) -> Alignment:
        """Align a text with its window, whose states are computed again."""
        model = self._model
        states_1SC = encoder.encode(self._frames(media), model.weights, model.config.encoder_heads, lambda: None)
        return align(states_1SC[0], before, text, model, heard=_states_with_audio(media))

    def _frames(self, media: Sequence[Media]) -> Tensor:
        assert all(isinstance(each, Mel) for each in media), "prepare refuses other media"
        frames = [torch.from_numpy(mel.frames) for mel in media if isinstance(mel, Mel)]
        return torch.stack(frames).to(device=self.device, dtype=self.dtype, non_blocking=True)

    def _check_pages(self, page_size: int) -> None:
        memory = self._model.config.memory
        if memory % page_size:
            raise ConfigError(f"page_size is {page_size}: make it divide the positions of a window, {memory}")


def _states_with_audio(media: Sequence[Media]) -> int:
    """Return how many states of a window begin within its audio: each is of two frames."""
    (mel,) = media
    assert isinstance(mel, Mel), "prepare refuses other media"
    return max(1, mel.content // 2)


def _rows(kv: KVView, rows_N: Tensor, layout: PagedLayout) -> KVView:
    """Return the cache as some rows of a batch see it."""
    return replace(kv, positions_T=kv.positions_T[rows_N], slots_T=kv.slots_T[rows_N], layout=layout)


def _no_rotations(positions: int, head_dim: int, device: torch.device, dtype: torch.dtype) -> Tensor:
    """Return a table of rotations by no angle, (S, F, 2): positions are in the embeddings."""
    precise = torch.promote_types(dtype, torch.float32)
    return torch.tensor([1.0, 0.0], dtype=precise, device=device).expand(positions, head_dim // 2, 2).contiguous()
