"""Llama 3.2 and Qwen3 behind the engine's port.

T positions packed over sequences, B rows of a decode, R rows to read, N rows given as embeddings, C model dim.
"""

from collections.abc import Callable, Sequence

from torch import Tensor

from stoop_worker.engine.config import EngineConfig
from stoop_worker.engine.device.sampler import sample_tokens
from stoop_worker.engine.graphs import Graphs
from stoop_worker.engine.inputs import token_inputs
from stoop_worker.engine.model import KVSpec, Prepared, RequestInvalid, Spec
from stoop_worker.engine.request import Chat, Media, Message, Request, Sampling
from stoop_worker.engine.tensors import FedRows, Given, HeadReads, KVView, LastHeads
from stoop_worker.errors import ConfigError
from stoop_worker.kernels.layer_stack import stack_of
from stoop_worker.kernels.rotate_write import Places
from stoop_worker.models.blocks.rope import frequencies, rotations
from stoop_worker.models.blocks.token_embedding import embed_tokens
from stoop_worker.models.decoder import decode_text, text
from stoop_worker.models.decoder.model import Decoder, load_decoder
from stoop_worker.models.decoder.prompt import chat_ids, text_messages
from stoop_worker.models.decoder.skill import ChatSkill
from stoop_worker.models.loading.download import Download, Source
from stoop_worker.models.loading.options import LoadOptions

__all__ = ["DecoderFamily", "check_options", "check_request", "open_model"]


def open_model(found: Source, options: LoadOptions, download: Download) -> "DecoderFamily":
    """Load a model from the files found; raises `CheckpointError` or `ConfigError`."""
    check_options(options)
    model = load_decoder(found, options)
    return DecoderFamily(model, max_context=options.max_context)


def check_options(options: LoadOptions) -> None:
    """Raise `ConfigError` for options that this family cannot follow."""
    if options.fp8_linears:
        raise ConfigError(
            "--fp8-linears is for Moondream and XLM-RoBERTa: leave it off, or use a checkpoint that is stored in float8"
        )
    if options.adapters is not None:
        raise ConfigError("--adapters is for Moondream: leave it off")


def check_request(request: Request) -> None:
    """Raise `RequestInvalid` if the request asks for an adapter, which this family lacks."""
    if request.adapter is not None:
        raise RequestInvalid(f"this model has no adapters: leave `adapter` out, which was {request.adapter!r}")


class DecoderFamily:
    """A loaded decoder, for one engine and contexts of up to `max_context`.

    `fused` decodes in fewer launches; it is on by default where the kernels for it run.
    """

    def __init__(self, model: Decoder, *, max_context: int = 32_768, fused: bool | None = None) -> None:
        config = model.config
        runs_well = decode_text.runs_well(model.device, model.dtype, config.head_dim)
        self._fused = runs_well if fused is None else fused
        self._model = model
        self._stack = stack_of(model.weights.blocks, model.weights.epsilon) if self._fused else None
        context = min(config.max_context, max_context)
        self._rotations_SF2 = rotations(
            frequencies(config.head_dim, config.theta, config.scaling), context, model.device, dtype=model.dtype
        )
        self.spec = Spec(
            kv=KVSpec(config.layers, config.key_heads, config.head_dim),
            dim=config.dim,
            vocab_size=config.vocab_size,
            max_context=context,
            tasks=(Chat,),
            sampling=model.language.sampling,
            query_heads=config.heads,
        )
        self.name = model.name
        self.digest = model.digest
        self.untrained = model.untrained
        self.device = model.device
        self.dtype = model.dtype

    def prepare(self, request: Request) -> Prepared:
        """Lay the chat out by the model's template."""
        check_request(request)
        ids = chat_ids(request, self._model.language, text_messages)
        return Prepared(tuple(token_inputs(ids)), self._skill(request))

    def compiles(self, request: Request) -> bool:
        """Return whether the answer's grammar is new."""
        return not self._model.language.grammars.knows(request.sampling.grammar)

    def read_vocabulary(self) -> None:
        """Read the vocabulary for JSON schemas."""
        self._model.language.grammars.read_vocabulary()

    def rehearsal(self, config: EngineConfig) -> list[Request]:
        """Return chats; on a GPU they fill a step, to check that a full step fits into memory."""
        full = self.device.type != "cpu"
        count = config.max_batch if full else 1
        length = max(1, min(config.token_budget, self.spec.max_context // 2) // count) if full else 1
        chat = Chat((Message("user", ("warm up " * (length // 3 + 1),)),))
        sampling = Sampling(temperature=0.0, max_tokens=4)
        return [Request(f"warm-up {number}", chat, (), sampling) for number in range(count)]

    def capture(self, graphs: Graphs, usual_cost: int) -> None:
        """There is nothing to capture: the model takes no media."""

    def encode(self, media: Sequence[Media], out_NC: Tensor, on_progress: Callable[[], None]) -> None:
        """Not called: the model takes no media."""

    def feed(self, fed: FedRows, last: LastHeads) -> Tensor:
        """Embed tokens."""
        return embed_tokens(fed, last, self._model.weights.embeddings)

    def forward(self, x_TC: Tensor, kv: KVView, given: Given | None, wanted_R: Tensor | None) -> Tensor:
        """Run the decoder."""
        return text.forward(x_TC, kv, self._places(kv), self._model.weights, wanted_R=wanted_R)

    def step(self, x_BC: Tensor, kv: KVView) -> Tensor:
        """Run the decoder on one position per sequence."""
        if not self._fused:
            return self.forward(x_BC, kv, None, None)
        return decode_text.step(x_BC, kv, self._places(kv), self._model.weights, self._stack)

    def read(self, hidden_RC: Tensor, reads: HeadReads, last: LastHeads) -> Tensor:
        """Sample tokens."""
        logits_RV = text.logits(hidden_RC, self._model.weights)
        return reads.keep(sample_tokens(logits_RV, reads.sampling), None, last)

    def _places(self, kv: KVView) -> Places:
        return Places(kv.positions_T, self._rotations_SF2, kv.slots_T)

    def _skill(self, request: Request) -> ChatSkill:
        language = self._model.language
        constraint = language.grammars.start(request.sampling.grammar)
        return ChatSkill(request, ends=language.ends, tokenizer=language.tokenizer, constraint=constraint)
