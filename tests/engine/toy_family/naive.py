"""One request after another, the whole sequence computed again for every token, in plain torch.

It shares with the family its weights, and with the engine the kernel that samples and the numbers a seed gives.
T positions, H heads, D head dim, F frequencies.
"""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from stoop_worker.engine.device.sampler import uniforms
from stoop_worker.engine.request import FinishReason, Query, Request
from stoop_worker.kernels.sampling import Limits, sample
from tests.engine.toy_family.sizes import CONTEXT, DIM, EOS, EPSILON, HEAD_DIM, HEADS, KEY_HEADS, PATCH, THETA
from tests.engine.toy_family.weights import Block, toy_weights

__all__ = ["Answer", "answer"]


@dataclass
class Answer:
    tokens: list[int] = field(default_factory=list)
    text: str = ""
    reason: FinishReason = FinishReason.STOP
    input_tokens: int = 0


@torch.inference_mode()
def answer(request: Request) -> Answer:
    weights, sampling = toy_weights(), request.sampling
    x, positions, following = _prompt(request)
    found = Answer(input_tokens=len(x))
    while True:
        hidden = _hidden(torch.stack(x), torch.tensor(positions))[-1:]
        token = _sample(_norm(hidden, weights.norm) @ weights.head.T, request, len(found.tokens))
        if token == EOS or token in sampling.stop_ids:
            return found
        found.tokens.append(token)
        found.text = "".join(f"{one} " for one in found.tokens)
        cuts = [found.text.index(stop) for stop in sampling.stop if stop in found.text]
        if cuts:
            found.text = found.text[: min(cuts)]
            return found
        if len(found.tokens) == sampling.max_tokens or len(x) == CONTEXT:
            found.reason = FinishReason.LENGTH
            return found
        x.append(weights.embeddings[token])
        positions.append((following, following))
        following += 1


def _prompt(request: Request) -> tuple[list[Tensor], list[tuple[int, int]], int]:
    assert isinstance(request.task, Query)
    weights, media = toy_weights(), list(request.media)
    x: list[Tensor] = []
    positions: list[tuple[int, int]] = []
    following = 0
    for word in request.task.question.split():
        if word != "<image>":
            x.append(weights.embeddings[int(word)])
            positions.append((following, following))
            following += 1
            continue
        pixels = torch.tensor(media.pop(0).pixels).double() / 255
        rows, columns = pixels.shape[0] // PATCH, pixels.shape[1] // PATCH
        for row in range(rows):
            for column in range(columns):
                patch = pixels[row * PATCH : (row + 1) * PATCH, column * PATCH : (column + 1) * PATCH]
                x.append(weights.patches @ patch.flatten())
                positions.append((following + row, following + column))
        following += max(rows, columns)
    return x, positions, following


def _hidden(x: Tensor, positions: Tensor) -> Tensor:
    for block in toy_weights().blocks:
        x = x + _attention(_norm(x, block.norm1), positions, block)
        gates, ups = (_norm(x, block.norm2) @ block.gate_up.T).chunk(2, dim=-1)
        x = x + (gates * torch.sigmoid(gates) * ups) @ block.down.T
    return x


def _attention(x: Tensor, positions: Tensor, block: Block) -> Tensor:
    made = (x @ block.qkv.T).view(len(x), HEADS + 2 * KEY_HEADS, HEAD_DIM)
    q, k, v = made[:, :HEADS], made[:, HEADS : HEADS + KEY_HEADS], made[:, HEADS + KEY_HEADS :]
    q, k = _rotated(q, positions), _rotated(k, positions)
    causal = torch.ones(len(x), len(x), dtype=torch.bool).tril()
    heads = []
    for head in range(HEADS):
        group = head * KEY_HEADS // HEADS
        scores = q[:, head] @ k[:, group].T / HEAD_DIM**0.5
        heads.append(torch.softmax(scores.masked_fill(~causal, float("-inf")), dim=-1) @ v[:, group])
    return torch.cat(heads, dim=-1) @ block.out.T


def _rotated(x: Tensor, positions: Tensor) -> Tensor:
    """Turn channels i and i + F by an angle of their own: even ones by the row, odd ones by the column."""
    half = HEAD_DIM // 2
    speeds = THETA ** (-torch.arange(half).double() / half)
    angles = positions[:, torch.arange(half) % 2].double() * speeds
    cos, sin = angles.cos()[:, None], angles.sin()[:, None]
    one, two = x[..., :half], x[..., half:]
    return torch.cat((one * cos - two * sin, one * sin + two * cos), dim=-1)


def _norm(x: Tensor, weight: Tensor) -> Tensor:
    assert x.shape[-1] == DIM
    return x / torch.sqrt((x * x).mean(dim=-1, keepdim=True) + EPSILON) * weight


def _sample(logits: Tensor, request: Request, count: int) -> int:
    sampling = request.sampling
    one = torch.tensor([0.0, 0.0, 0.0], dtype=torch.float64)
    one[0], one[1], one[2] = sampling.temperature, sampling.top_p, uniforms([sampling.seed or 0], [count])[0]
    limits = Limits(top_ks_B=torch.tensor([sampling.top_k], dtype=torch.int32)) if sampling.top_k else None
    return int(sample(logits, one[:1], one[1:2], one[2:], limits))
