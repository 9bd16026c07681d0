"""A chat model without weights, which costs little beside the engine, with the vocabulary of a model of full size.

It keeps the ids of a sequence in the KV cache. The next id follows from their sum and from the row's random number, so
that an answer is right only if inputs, pages, seats and sampling were. B rows of a decode, T packed positions, R rows
whose heads are read, P pages, C = 1 channel.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from benchmarks.families.languages import words_of, write_language
from benchmarks.families.sizes import document_of
from stoop_worker.engine.config import EngineConfig
from stoop_worker.engine.device.sampler import uniforms
from stoop_worker.engine.graphs import Graphs
from stoop_worker.engine.inputs import token_inputs
from stoop_worker.engine.model import KVSpec, Prepared, Spec
from stoop_worker.engine.request import Chat, Media, Request
from stoop_worker.engine.tensors import FedRows, Given, HeadReads, KVView, LastHeads, MaskRows
from stoop_worker.kernels.paged_attention import PagedLayout
from stoop_worker.models.blocks.token_embedding import embed_tokens
from stoop_worker.models.decoder.model import Language, read_language
from stoop_worker.models.decoder.prompt import chat_ids, text_messages
from stoop_worker.models.decoder.skill import ChatSkill
from stoop_worker.models.loading.download import Source

__all__ = ["SummingModel"]

_BITS: Final = 24  # of a random number
_WORD: Final = 32  # ids in a word of a mask
_Ints = npt.NDArray[np.int64]


class SummingModel:
    """Answers chats with words; the language of `name`, a key of `sizes.MODELS`, is written to `folder` first."""

    name = "summing"
    digest = "summing"
    untrained = True
    device = torch.device("cpu")
    dtype = torch.float64  # exact for a sum of ids

    def __init__(self, folder: Path, name: str, *, max_context: int) -> None:
        document = document_of(name)
        write_language(folder, document)
        self._words = words_of(document)
        self.language: Language = read_language(Source(folder, (), name), document, document["vocab_size"])
        self.spec = Spec(
            kv=KVSpec(1, 1, 1), dim=1, vocab_size=document["vocab_size"], max_context=max_context, tasks=(Chat,)
        )
        self._ids_V1 = torch.arange(document["vocab_size"], dtype=self.dtype)[:, None]

    def answer(self, request: Request) -> str:
        """Return the whole answer to a request without a grammar, computed one id at a time."""
        total, ids = sum(self._prompt(request)), list[int]()
        most = request.sampling.max_tokens
        for drawn in uniforms([request.sampling.seed or 0] * most, range(most)):
            ids.append(int(self._choice(np.array([total]), np.array([drawn]))[0]))
            total += ids[-1]
        return self.language.tokenizer.detokenize(ids)

    def prepare(self, request: Request) -> Prepared:
        """Lay the chat out, and begin its answer."""
        language = self.language
        skill = ChatSkill(
            request,
            ends=language.ends,
            tokenizer=language.tokenizer,
            constraint=language.grammars.start(request.sampling.grammar),
        )
        return Prepared(tuple(token_inputs(self._prompt(request))), skill)

    def compiles(self, request: Request) -> bool:
        """Return whether the answer's grammar is new."""
        return not self.language.grammars.knows(request.sampling.grammar)

    def read_vocabulary(self) -> None:
        """Read nothing: no stream is there to stall."""

    def rehearsal(self, config: EngineConfig) -> list[Request]:
        """Return no requests: nothing needs to be warmed up."""
        return []

    def capture(self, graphs: Graphs, usual_cost: int) -> None:
        """There is nothing to capture."""

    def encode(self, media: Sequence[Media], out_NC: Tensor, on_progress: Callable[[], None]) -> None:
        """Not called: the model takes no media."""

    def feed(self, fed: FedRows, last: LastHeads) -> Tensor:
        """Return the ids themselves."""
        return embed_tokens(fed, last, self._ids_V1)

    def forward(self, x_TC: Tensor, kv: KVView, given: Given | None, wanted_R: Tensor | None) -> Tensor:
        """Keep the ids; return the sums of whole sequences in the rows of their last positions."""
        keys = _keep(x_TC, kv)
        hidden_TC = x_TC.clone()
        hidden_TC[kv.layout.cu_seqlens_B1[1:].long() - 1] = _sums(keys, kv.layout)
        return hidden_TC if wanted_R is None else hidden_TC[wanted_R]

    def step(self, x_BC: Tensor, kv: KVView) -> Tensor:
        """Keep the ids; return the sums of the sequences."""
        return _sums(_keep(x_BC, kv), kv.layout)

    def read(self, hidden_RC: Tensor, reads: HeadReads, last: LastHeads) -> Tensor:
        """Choose ids; a mask moves the choice on to the next id that it allows."""
        chosen_R = self._choice(hidden_RC[:, 0].numpy().astype(np.int64), reads.sampling.uniforms_R.numpy())
        if reads.sampling.masks is not None:
            _move_on(chosen_R, reads.sampling.masks)
        return reads.keep(torch.from_numpy(chosen_R), None, last)

    def _prompt(self, request: Request) -> list[int]:
        return chat_ids(request, self.language, text_messages)

    def _choice(self, sums_R: _Ints, uniforms_R: npt.NDArray[np.float64]) -> _Ints:
        drawn_R = (uniforms_R * (1 << _BITS)).astype(np.int64)
        return self._words.start + (sums_R + drawn_R) % len(self._words)


def _keep(x_TC: Tensor, kv: KVView) -> Tensor:
    """Write the rows to their slots; return all keys by page, (pages, page size)."""
    keys = kv.pool[0, 0, :, :, 0, 0]
    written = kv.slots_T >= 0
    slots = kv.slots_T[written]
    keys[slots // keys.shape[1], slots % keys.shape[1]] = x_TC[written, 0]
    return keys


def _sums(keys: Tensor, layout: PagedLayout) -> Tensor:
    kept_BT = keys[layout.page_table_BP.long()].flatten(1)
    is_past_BT = torch.arange(kept_BT.shape[1])[None] < layout.context_lens_B[:, None]
    return torch.where(is_past_BT, kept_BT, 0.0).sum(dim=1, keepdim=True)


def _move_on(chosen_R: _Ints, masks: MaskRows) -> None:
    masks_NW, rows_R = masks.masks_NW.numpy(), masks.rows_R.numpy()
    for row, mask in enumerate(rows_R.tolist()):
        word, bit = divmod(int(chosen_R[row]), _WORD)
        if mask < 0 or masks_NW[mask, word] >> bit & 1:
            continue
        allowed = np.flatnonzero(masks_NW[mask])
        word = int(allowed[np.searchsorted(allowed, word + 1) % len(allowed)])
        bits = int(masks_NW[mask, word])
        chosen_R[row] = word * _WORD + (bits & -bits).bit_length() - 1
