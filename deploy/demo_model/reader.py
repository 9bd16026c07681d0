"""Computes greedy replies to many prompts at once, without the engine, to follow a training.

R prompts (rows), I images, P prefix positions, T positions in all, H heads, D head dim, C model dim.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn import functional

from deploy.demo_model import dense_text as text
from deploy.demo_model.exam import Ask, Reply
from stoop_worker.models.loading.tokenizer import Tokenizer
from stoop_worker.models.moondream import region
from stoop_worker.models.moondream.config import ModelConfig
from stoop_worker.models.moondream.weights import Weights

__all__ = ["Reader"]

_MOST_STEPS = 200
_GREEDY_PROMPT = 24  # the longest prompt
_TEXT, _DETECT, _POINT, _REASON = "query", "detect", "point", "reason"


@dataclass(slots=True)
class _Row:
    """The rest of one prompt's input, and its reply so far."""

    mode: str
    feed: list[int]
    reply: list[int] = field(default_factory=list)
    numbers: list[float] = field(default_factory=list)
    done: bool = False


@dataclass(frozen=True)
class Reader:
    """A model that answers; weights, images and prefixes live on one device."""

    config: ModelConfig
    weights: Weights
    tokenizer: Tokenizer

    @torch.no_grad()
    def replies(self, image_IPC: Tensor, prompts: Sequence[tuple[int, Ask]]) -> list[Reply]:
        """Answer prompts, each about one of the images."""
        prefix = _Cache(self.config, self._prefill(image_IPC))
        rows = [_Row(_mode(ask), self._prompt(ask)) for _, ask in prompts]
        longest = max(len(row.feed) for row in rows)
        assert longest <= _GREEDY_PROMPT, "no question has a longer prompt"
        cache = prefix.rows([image for image, _ in prompts], longest + _MOST_STEPS)
        x_RC = self._tokens([row.feed.pop(0) for row in rows])
        for step in range(longest + _MOST_STEPS - 1):
            position = self.config.text.prefix_attn + step
            positions_R1 = torch.full((len(rows), 1), position, device=x_RC.device)
            hidden = text.forward(x_RC[:, None], positions_R1, self.weights.text, self.config.text, cache.at(position))
            x_RC = self._advance(rows, hidden[:, 0])
            if all(row.done for row in rows):
                break
        return [self._reply(row) for row in rows]

    def _prefill(self, image_IPC: Tensor) -> list[tuple[Tensor, Tensor]]:
        kept: list[tuple[Tensor, Tensor]] = []

        def attend(layer: int, q_THD: Tensor, k_THD: Tensor, v_THD: Tensor) -> Tensor:
            kept.append((k_THD, v_THD))
            q, k, v = (x.transpose(1, 2) for x in (q_THD, k_THD, v_THD))
            return functional.scaled_dot_product_attention(q, k, v).transpose(1, 2)

        first = self._tokens([self.config.tokenizer.bos_id])
        x = torch.cat((first.expand(len(image_IPC), 1, -1), image_IPC), dim=1)
        positions = torch.arange(self.config.text.prefix_attn, device=x.device)
        text.forward(x, positions, self.weights.text, self.config.text, attend)
        return kept

    def _prompt(self, ask: Ask) -> list[int]:
        ids = self.config.tokenizer
        if ask.skill == "caption":
            return list(ids.templates.caption[ask.text])
        if ask.skill == "query":
            suffix = list(ids.templates.query.suffix)
            tail = [*suffix, ids.thinking_id] if ask.reasoning else suffix * (2 if ids.query_double_suffix else 1)
            return [*ids.templates.query.prefix, *self.tokenizer.tokenize(ask.text), *tail]
        affixes = ids.templates.detect if ask.skill == "detect" else ids.templates.point
        return [*affixes.prefix, *self.tokenizer.tokenize(" " + ask.text), *affixes.suffix]

    def _tokens(self, tokens: Sequence[int]) -> Tensor:
        return text.embed(torch.tensor(tokens, device=self.weights.text.wte.device), self.weights.text)

    def _advance(self, rows: Sequence[_Row], hidden_RC: Tensor) -> Tensor:
        """Return every row's next input, from its prompt or from the model's output."""
        tokens = text.logits(hidden_RC, self.weights.text).argmax(-1).tolist()
        values_R = region.read_coordinate(region.coordinate_logits(hidden_RC, self.weights.region))
        sizes_R2 = region.read_size(region.size_logits(hidden_RC, self.weights.region))
        coordinates, sizes = values_R.tolist(), sizes_R2.tolist()
        kinds = [
            _next(row, token, value, size, self.config)
            for row, token, value, size in zip(rows, tokens, coordinates, sizes, strict=True)
        ]
        ids = self.config.tokenizer
        x_RC = self._tokens(kinds)
        kinds_R1 = torch.tensor(kinds, device=x_RC.device)[:, None]
        x_RC = torch.where(kinds_R1 == ids.coord_id, region.write_coordinate(values_R, self.weights.region), x_RC)
        return torch.where(kinds_R1 == ids.size_id, region.write_size(sizes_R2, self.weights.region), x_RC)

    def _reply(self, row: _Row) -> Reply:
        if row.mode == _DETECT:
            boxes = zip(*[iter(row.numbers)] * 4, strict=False)
            return [(x - w / 2, y - h / 2, x + w / 2, y + h / 2) for x, y, w, h in boxes]
        if row.mode == _POINT:
            return list(zip(*[iter(row.numbers)] * 2, strict=False))
        return self.tokenizer.detokenize(row.reply)


def _next(row: _Row, token: int, value: float, size: list[float], config: ModelConfig) -> int:
    """Return the row's next input: a token, or the id of a coordinate or size."""
    ids = config.tokenizer
    if row.feed:
        return row.feed.pop(0)
    if row.done:
        return ids.eos_id
    if row.mode in (_TEXT, _REASON):
        if row.mode == _REASON and token == ids.answer_id:
            row.mode, row.reply = _TEXT, []  # the reasoning is over: the answer follows the suffix
            return ids.templates.query.suffix[0]
        row.done = token == ids.eos_id and row.mode == _TEXT
        row.reply += [] if row.done else [token]
        return token
    stage = len(row.numbers) % (4 if row.mode == _DETECT else 2)
    if stage == 0 and token == ids.eos_id:
        row.done = True
        return ids.eos_id
    if stage == 2:
        row.numbers += size
        return ids.size_id
    row.numbers.append(value)
    return ids.coord_id


def _mode(ask: Ask) -> str:
    if ask.skill in (_DETECT, _POINT):
        return ask.skill
    return _REASON if ask.reasoning else _TEXT


@dataclass(frozen=True)
class _Cache:
    """Keys and values of every image's prefix, one pair per layer."""

    config: ModelConfig
    layers: list[tuple[Tensor, Tensor]]

    def rows(self, images: Sequence[int], more: int) -> "_Rows":
        """Return a cache with one row per prompt and room for `more` positions."""
        index = torch.tensor(images, device=self.layers[0][0].device)
        room = [tuple(functional.pad(side[index], (0, 0, 0, 0, 0, more)) for side in pair) for pair in self.layers]
        return _Rows(room)


@dataclass(frozen=True)
class _Rows:
    layers: list[tuple[Tensor, ...]]

    def at(self, position: int) -> text.Attend:
        """Return attention for one new input per row, at one position."""

        def attend(layer: int, q_THD: Tensor, k_THD: Tensor, v_THD: Tensor) -> Tensor:
            keys, values = self.layers[layer]
            keys[:, position], values[:, position] = k_THD[:, 0], v_THD[:, 0]
            q, k, v = (x.transpose(1, 2) for x in (q_THD, keys[:, : position + 1], values[:, : position + 1]))
            return functional.scaled_dot_product_attention(q, k, v).transpose(1, 2)

        return attend
