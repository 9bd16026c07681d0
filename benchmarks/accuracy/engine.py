"""Sends the exam's requests directly to the engine."""

from pathlib import Path

import torch

from deploy.demo_model.exam import Ask, Reply
from deploy.demo_model.pictures.drawing import encode
from deploy.demo_model.pictures.scenes import Scene
from stoop_worker.engine.config import EngineConfig
from stoop_worker.engine.engine import Engine
from stoop_worker.engine.request import Caption, Detect, Finished, Point, Query, Request, Sampling, Task
from stoop_worker.images import Crops, ImageLimits, cut, load
from stoop_worker.models.moondream.family import MoondreamFamily
from stoop_worker.models.moondream.model import load as load_model

__all__ = ["ask_engine"]

_AT_ONCE = 256  # requests in flight
_MODEL = Path(__file__).parents[2] / "deploy" / "demo_model" / "model"


def ask_engine(items: list[tuple[Scene, Ask]], model: str | None, precision: str | None) -> list[Reply]:
    """Return the reply to each item: greedy, on a CUDA device if there is one.

    `precision` is float32, bfloat16, or bfloat16 with images and prompts (fp8) or also keys and values (fp8-cache) in
    fp8. The default is bfloat16 on CUDA and float32 elsewhere.
    """
    cuda = torch.cuda.is_available()
    precision = precision or ("bfloat16" if cuda else "float32")
    dtype = torch.float32 if precision == "float32" else torch.bfloat16
    loaded = load_model(model or _MODEL, device="cuda" if cuda else "cpu", dtype=dtype)
    fp8 = precision.startswith("fp8")
    engine = Engine(MoondreamFamily(loaded, fp8_linears=fp8), EngineConfig(fp8_cache=precision == "fp8-cache"))
    replies: dict[int, Reply] = {}
    for start in range(0, len(items), _AT_ONCE):
        cuts: dict[int, Crops] = {}
        for number, (shown, wanted) in enumerate(items[start : start + _AT_ONCE], start):
            if shown.seed not in cuts:
                cuts[shown.seed] = cut(load(encode(shown), ImageLimits()), loaded.config.vision.geometry)
            engine.submit(Request(str(number), _task(wanted), (cuts[shown.seed],), Sampling(temperature=0.0)))
        while not engine.idle:
            for output in engine.step():
                if isinstance(output, Finished):
                    number = int(output.id)
                    replies[number] = _reply(items[number][1], output)
    return [replies[number] for number in range(len(items))]


def _task(wanted: Ask) -> Task:
    match wanted.skill:
        case "query":
            return Query(wanted.text, reasoning=wanted.reasoning)
        case "caption":
            return Caption(wanted.text)
        case "detect":
            return Detect(wanted.text)
        case _:
            return Point(wanted.text)


def _reply(wanted: Ask, output: Finished) -> Reply:
    if wanted.skill == "detect":
        return [(box.x_min, box.y_min, box.x_max, box.y_max) for box in output.boxes]
    if wanted.skill == "point":
        return [(point.x, point.y) for point in output.points]
    return output.text
