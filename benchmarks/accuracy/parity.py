"""Compares a Moondream checkpoint's greedy answers with those of Moondream's reference code, on the same images.

    git clone https://github.com/vikhyat/moondream
    python -m benchmarks.accuracy.parity FOLDER --reference moondream    # Moondream 2
    python -m benchmarks.accuracy.parity FOLDER --remote-code            # the code that lies in the checkpoint's folder

FOLDER holds config.json, the weights and tokenizer.json. Prints each skill's share of equal answers, and exits with 1
if one is below --least. In bfloat16 near ties fall either way; --dtype fp32 leaves only real differences. Moondream 2's
code resizes by libvips if pyvips is installed: set `vision.resize` in config.json to "libvips", or it sees slightly
other pixels. Its own masks have 2,048 positions and its grid 27 patches a side, so a test model needs this context and
27 vision layers.
"""

import argparse
import asyncio
import io
import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any

from PIL import Image

from benchmarks.accuracy.reference import Reference, from_clone, from_remote_code
from benchmarks.engine.photos import LARGE, SMALL, draw_photo
from stoop_worker.local import LocalEngine
from stoop_worker.models.loading.download import locate, snapshot
from stoop_worker.models.moondream.files import read_config

__all__ = ["Agreement", "Ask", "agreement", "main"]

_DTYPES = {"bf16": "bfloat16", "fp32": "float32"}
_CLOSE = 2 / 1024  # two bins of a coordinate


@dataclass(frozen=True, slots=True)
class Ask:
    """A skill's method, and its argument beside the image."""

    skill: str
    about: str

    def settings(self, most: int) -> dict[str, float]:
        """Return greedy settings with at most `most` tokens, or objects."""
        return {"max_objects": most} if self.skill in ("detect", "point") else {"temperature": 0.0, "max_tokens": most}


ASKS = (
    Ask("query", "What is in this picture?"),
    Ask("query", "What colour is the largest shape?"),
    Ask("caption", "short"),
    Ask("caption", "normal"),
    Ask("detect", "circle"),
    Ask("point", "rectangle"),
)


@dataclass(frozen=True, slots=True)
class Agreement:
    """One answer: whether both are equal, and the share of it before the first difference."""

    skill: str
    equal: bool
    share: float


def main(argv: Sequence[str] | None = None) -> int:
    """Ask both, compare, print; return the exit code."""
    arguments = _parser().parse_args(argv)
    images = [Image.open(path).convert("RGB") for path in arguments.images] or list(_drawn(arguments.count))
    reference = _reference(arguments)
    expected = [_reference_answer(reference, image, ask, arguments.tokens) for image in images for ask in ASKS]
    found = asyncio.run(_answers(arguments, images))
    pairs = zip([ask for _ in images for ask in ASKS], found, expected, strict=True)
    agreements = [agreement(ask.skill, ours, theirs) for ask, ours, theirs in pairs]
    shares = _shares(agreements)
    vision = read_config(locate(Path(arguments.model), None, snapshot))[1].vision
    print(f"images resized by {vision.resize}, pixels rounded {vision.normalise}")
    for skill, (equal, share) in shares.items():
        print(f"{skill:<10} equal {equal:6.1%}   before the first difference {share:6.1%}")
    if arguments.out:
        document = {
            "resize": vision.resize,
            "normalise": vision.normalise,
            "answers": [asdict(each) for each in agreements],
        }
        arguments.out.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    return int(any(equal < arguments.least for equal, _ in shares.values()))


def agreement(skill: str, ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> Agreement:
    """Compare two answers of a skill: texts by characters, boxes and points by their coordinates."""
    one, other = (
        next(answer[key] for key in ("answer", "caption", "objects", "points") if key in answer)
        for answer in (ours, theirs)
    )
    longest = max(len(one), len(other))
    alike = sum(1 for _ in takewhile(_alike, zip(one, other, strict=False)))
    return Agreement(skill, alike == longest, alike / longest if longest else 1.0)


def _alike(pair: tuple[Any, Any]) -> bool:
    one, other = pair
    return one == other if isinstance(one, str) else all(abs(one[name] - other[name]) <= _CLOSE for name in one)


def _shares(agreements: Sequence[Agreement]) -> dict[str, tuple[float, float]]:
    skills: dict[str, list[Agreement]] = defaultdict(list)
    for each in agreements:
        skills[each.skill].append(each)
    return {
        skill: (sum(each.equal for each in all_) / len(all_), sum(each.share for each in all_) / len(all_))
        for skill, all_ in skills.items()
    }


def _reference(arguments: argparse.Namespace) -> Reference:
    folder, dtype = Path(arguments.model), _DTYPES[arguments.dtype]
    if arguments.remote_code:
        return from_remote_code(folder, device=arguments.device, dtype=dtype)
    return from_clone(arguments.reference, folder, device=arguments.device, dtype=dtype)


def _reference_answer(reference: Reference, image: Image.Image, ask: Ask, most: int) -> Mapping[str, Any]:
    return getattr(reference, ask.skill)(reference.encode_image(image), ask.about, settings=ask.settings(most))


async def _answers(arguments: argparse.Namespace, images: Sequence[Image.Image]) -> list[Mapping[str, Any]]:
    settings = {"device": arguments.device, "dtype": _DTYPES[arguments.dtype]}
    async with LocalEngine(arguments.model, **settings) as engine:
        return [
            await getattr(engine, ask.skill)(_png(image), ask.about, settings=ask.settings(arguments.tokens))
            for image in images
            for ask in ASKS
        ]


def _png(image: Image.Image) -> bytes:
    written = io.BytesIO()
    image.save(written, "PNG")
    return written.getvalue()


def _drawn(count: int) -> Iterator[Image.Image]:
    for number in range(count):
        yield Image.open(io.BytesIO(draw_photo(number, LARGE if number % 2 else SMALL))).convert("RGB")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="folder of the checkpoint")
    parser.add_argument("--reference", type=Path, help="clone of vikhyat/moondream, unless it is importable")
    parser.add_argument("--remote-code", action="store_true", help="run the Python files in FOLDER, by transformers")
    parser.add_argument("--images", nargs="*", default=[], help="by default drawn ones")
    parser.add_argument("--count", type=int, default=4, help="images to draw")
    parser.add_argument("--tokens", type=int, default=32, help="most tokens of an answer, and most objects")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", choices=_DTYPES, default="fp32")
    parser.add_argument("--least", type=float, default=0.9, help="least share of equal answers")
    parser.add_argument("--out", type=Path, help="JSON file for each answer's agreement")
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
