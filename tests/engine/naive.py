"""One request after another, the whole sequence computed again for every step: slow, and plainly right.

Written from the rules of Moondream's reference alone; it shares with the engine only the model, the kernel that
samples, and the numbers that a seed gives.
"""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from deploy.demo_model import dense_text as text
from stoop_worker.engine.device.sampler import uniforms
from stoop_worker.engine.request import Caption, Detect, FinishReason, Gaze, Point, Query, Request, SpatialRef
from stoop_worker.kernels.sampling import sample
from stoop_worker.models.moondream import region
from stoop_worker.models.moondream.model import Moondream
from tests.support.encoded import encode_images

__all__ = ["Answer", "answer"]


@dataclass
class Answer:
    text: str = ""
    reasoning: str | None = None
    grounding: list[tuple[int, int, list[tuple[float, float]]]] = field(default_factory=list)
    boxes: list[tuple[float, float, float, float]] = field(default_factory=list)
    points: list[tuple[float, float]] = field(default_factory=list)
    reason: FinishReason = FinishReason.STOP
    input_tokens: int = 0
    tokens: list[int] = field(default_factory=list)


class ContextFull(Exception):
    pass


@torch.inference_mode()
def answer(model: Moondream, request: Request) -> Answer:
    return _Run(model, request).go()


class _Run:
    def __init__(self, model: Moondream, request: Request) -> None:
        self.model, self.request = model, request
        self.ids = model.config.tokenizer
        self.answer = Answer()
        self.x: list[Tensor] = []
        self.prefix = 0
        self.drawn = 0

    def go(self) -> Answer:
        task, templates = self.request.task, self.ids.templates
        self.feed_token(self.ids.bos_id)
        if self.request.media:
            self.feed_image()
        if isinstance(task, Caption):
            self.feed_tokens(templates.caption[task.length])
        elif isinstance(task, Query):
            self.feed_query(task)
        elif isinstance(task, Gaze):
            self.feed_gaze(task)
        else:
            affixes = templates.detect if isinstance(task, Detect) else templates.point
            self.feed_tokens(affixes.prefix)
            if isinstance(task, Point):
                self.feed_references(task.spatial_refs)
            self.feed_tokens([*self.model.tokenizer.tokenize(" " + task.object), *affixes.suffix])
        self.answer.input_tokens = len(self.x)
        try:
            self.write() if isinstance(task, Query | Caption) else self.find(sized=isinstance(task, Detect))
        except ContextFull:
            self.answer.reason = FinishReason.LENGTH
        return self.answer

    # what is fed

    def feed(self, x_C: Tensor) -> None:
        if len(self.x) == self.model.config.text.max_context:
            raise ContextFull
        self.x.append(x_C)

    def feed_token(self, token: int) -> None:
        self.feed(text.embed(torch.tensor([token]), self.model.weights.text)[0])

    def feed_tokens(self, tokens: list[int] | tuple[int, ...]) -> None:
        for token in tokens:
            self.feed_token(token)

    def feed_coordinate(self, value: float) -> None:
        self.feed(region.write_coordinate(torch.tensor([value], dtype=torch.float64), self.model.weights.region)[0])

    def feed_size(self, width: float, height: float) -> None:
        self.feed(region.write_size(torch.tensor([[width, height]]).double(), self.model.weights.region)[0])

    def feed_image(self) -> None:
        model = self.model
        (embeddings_PC,) = encode_images(model, self.request.media)
        self.x += embeddings_PC.unbind(0)
        self.prefix = len(self.x)

    def feed_query(self, task: Query) -> None:
        query = self.ids.templates.query
        self.feed_tokens(query.prefix)
        self.feed_references(task.spatial_refs)
        self.feed_tokens(self.model.tokenizer.tokenize(task.question))
        if not self.ids.reasons(task):
            self.feed_tokens(query.suffix * (2 if self.ids.query_double_suffix else 1))
            return
        if self.ids.reasoning_after_suffix:
            self.feed_tokens(query.suffix)
        self.feed_token(self.ids.thinking_id)

    def feed_references(self, refs: tuple[SpatialRef, ...]) -> None:
        for ref in refs:
            if len(ref) == 2:
                self.feed_coordinate(ref[0])
                self.feed_coordinate(ref[1])
            else:
                self.feed_coordinate((ref[0] + ref[2]) / 2)
                self.feed_coordinate((ref[1] + ref[3]) / 2)
                self.feed_size(ref[2] - ref[0], ref[3] - ref[1])

    def feed_gaze(self, task: Gaze) -> None:
        tokenize, point = self.model.tokenizer.tokenize, self.ids.templates.point
        as_point = self.ids.gaze_as_point
        self.feed_tokens(point.prefix if as_point else tokenize("\n\nPoint:"))
        for value in task.eye:
            self.feed_coordinate(value)
        self.feed_tokens((*tokenize(" gaze"), *point.suffix) if as_point else tokenize(" gaze\n\n"))

    # what is read

    def hidden(self) -> Tensor:
        x_TC = torch.stack(self.x)
        positions_T = torch.arange(len(self.x))
        attend = text.dense_attend(self.prefix)
        return text.forward(x_TC, positions_T, self.model.weights.text, self.model.config.text, attend)[-1:]

    def token(self, hidden_1C: Tensor, suppressed: tuple[int, ...] = (), *, greedy: bool = False) -> int:
        logits_1V = text.logits(hidden_1C, self.model.weights.text)
        for token in suppressed if self.ids.suppress else ():
            logits_1V[0, token] = float("-inf")
        sampling = self.request.sampling
        drawn = sample(
            logits_1V,
            torch.tensor([0.0 if greedy else sampling.temperature], dtype=torch.float64),
            torch.tensor([sampling.top_p], dtype=torch.float64),
            torch.from_numpy(uniforms([sampling.seed or 0], [self.drawn])),
        )
        self.drawn += 1
        self.answer.tokens.append(int(drawn))
        return int(drawn)

    def coordinate(self, hidden_1C: Tensor) -> float:
        return float(region.read_coordinate(region.coordinate_logits(hidden_1C, self.model.weights.region)))

    # the skills

    def write(self) -> None:
        task = self.request.task
        if self.ids.reasons(task):
            self.answer.reasoning = ""
            self.reason()
            self.feed_tokens(self.ids.templates.query.suffix)
        tokens: list[int] = []
        token = self.token(self.hidden())
        ends = {self.ids.eos_id, self.ids.answer_id} if self.ids.answer_ends else {self.ids.eos_id}
        while token not in ends:
            tokens.append(token)
            self.answer.text = self.model.tokenizer.detokenize(tokens)
            if len(tokens) == self.request.sampling.max_tokens:
                self.answer.reason = FinishReason.LENGTH
                return
            self.feed_token(token)
            token = self.token(self.hidden(), (self.ids.answer_id,))

    def reason(self) -> None:
        ids = self.ids
        chunks: list[tuple[list[int], list[float]]] = [([], [])]
        generated = 0
        hidden = self.hidden()
        token = self.token(hidden)
        while token != ids.answer_id:
            if token in (ids.start_ground_points_id, ids.end_ground_id):
                chunks.append(([], []))
            chunks[-1][0].append(token)
            generated += 1
            value = self.coordinate(hidden)
            if token == ids.coord_id:
                chunks[-1][1].append(value)
            self.ground(chunks)
            self.feed_coordinate(value) if token == ids.coord_id else self.feed_token(token)
            if generated == self.request.sampling.max_tokens:
                return
            hidden = self.hidden()
            token = self.token(hidden, (ids.eos_id, ids.size_id))

    def ground(self, chunks: list[tuple[list[int], list[float]]]) -> None:
        self.answer.reasoning, self.answer.grounding = "", []
        for tokens, values in chunks:
            start = len(self.answer.reasoning)
            self.answer.reasoning += self.model.tokenizer.detokenize(tokens)
            if len(values) > 1:
                pairs = [(values[i], values[i + 1]) for i in range(0, len(values) - 1, 2)]
                self.answer.grounding.append((start, len(self.answer.reasoning), pairs))

    def find(self, *, sized: bool) -> None:
        count = 0
        hidden = self.hidden()
        while not self.ends(hidden, count):
            x = self.coordinate(hidden)
            self.feed_coordinate(x)
            y = self.coordinate(self.hidden())
            count += 1
            gaze = isinstance(self.request.task, Gaze)
            limit = gaze or count == self.request.sampling.max_objects
            if sized:
                self.feed_coordinate(y)
                logits = region.size_logits(self.hidden(), self.model.weights.region)
                width, height = region.read_size(logits)[0].tolist()
                self.answer.boxes.append((x - width / 2, y - height / 2, x + width / 2, y + height / 2))
            else:
                self.answer.points.append((x, y))
            if limit:
                self.answer.reason = FinishReason.STOP if gaze else FinishReason.LENGTH
                return
            self.feed_size(width, height) if sized else self.feed_coordinate(y)
            hidden = self.hidden()

    def ends(self, hidden_1C: Tensor, count: int) -> bool:
        token = self.token(hidden_1C, greedy=True)
        if self.ids.stop_rule == "token" or (self.ids.stop_rule == "pair_after_first" and not count):
            return token == self.ids.eos_id
        logits_V = text.logits(hidden_1C, self.model.weights.text)[0]
        return bool(logits_V[self.ids.eos_id] > logits_V[self.ids.coord_id])
