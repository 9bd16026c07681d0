"""Compares transcripts with those of openai-whisper's greedy decoding: segments, texts, and the times of words.

    python -m benchmarks.accuracy.openai_whisper --talks 3 --sentences 32

Both sides have the demo's Whisper in float32, and hear the same held-out English speech, of several windows. With
`--random` each of its tensors has its values in a random order: its words are noise, which the rules have to order.
Windows that reach beyond the end of a recording are then left out, because noise has times after the end, which only we
correct. With some seeds the two still differ, by our choice: we never draw a language in the text, and never go on by
less than half a second. It needs espeak-ng and the package openai-whisper, which the project does not install.
"""

import argparse
import asyncio
import importlib
import io
import json
import re
import shutil
import tempfile
import wave
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import tokenizers
import torch
from safetensors.torch import load_file, save_file

from deploy.demo_hearing.talks import draw_talk
from deploy.demo_hearing.voices import RATE, Voices
from stoop_worker.local import LocalEngine

__all__ = ["main"]

_MODEL: Final = Path(__file__).parents[2] / "deploy/demo_hearing/model"
_WINDOW_SECONDS: Final = 30
_NAMES: Final = (
    (r"^model\.", ""),
    (r"embed_positions\.weight$", "positional_embedding"),
    (r"embed_tokens", "token_embedding"),
    (r"\.layers\.", ".blocks."),
    (r"self_attn_layer_norm", "attn_ln"),
    (r"encoder_attn_layer_norm", "cross_attn_ln"),
    (r"final_layer_norm", "mlp_ln"),
    (r"encoder\.layer_norm", "encoder.ln_post"),
    (r"decoder\.layer_norm", "decoder.ln"),
    (r"self_attn", "attn"),
    (r"encoder_attn", "cross_attn"),
    (r"q_proj", "query"),
    (r"k_proj", "key"),
    (r"v_proj", "value"),
    (r"out_proj", "out"),
    (r"fc1", "mlp.0"),
    (r"fc2", "mlp.2"),
)
"""The names of a checkpoint's tensors, and those of openai-whisper."""


def main(argv: list[str] | None = None) -> None:
    """Compare and print; raises `SystemExit` if a segment, a text or a time differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--talks", type=int, default=3)
    parser.add_argument("--sentences", type=int, default=32, help="of each talk")
    parser.add_argument("--seed", type=int, default=11)
    parser.add_argument("--random", action="store_true", help="values of each tensor in a random order")
    arguments = parser.parse_args(argv)
    random, voices = Random(arguments.seed), Voices()
    samples = [draw_talk(voices, random, "en", arguments.sentences).samples for _ in range(arguments.talks)]
    with tempfile.TemporaryDirectory() as scratch:
        folder = _in_random_order(Path(scratch) / "model", arguments.seed) if arguments.random else _MODEL
        model = _other_model(folder)
        heard = asyncio.run(_hear(folder, [_levels(each) for each in samples]))
    same = []
    for ours, each in zip(heard, samples, strict=True):
        within = len(each) / RATE - _WINDOW_SECONDS if arguments.random else len(each) / RATE
        same.append(_compare(ours, _other(model, _levels(each)), within))
    if not all(same):
        raise SystemExit("the transcripts differ")


def _levels(samples_S: npt.NDArray[np.float32]) -> npt.NDArray[np.int16]:
    return (np.clip(samples_S, -1, 1) * 32767).astype(np.int16)


def _in_random_order(folder: Path, seed: int) -> Path:
    """Write the demo's model to a folder, the values of each tensor in a random order, and return the folder."""
    shutil.copytree(_MODEL, folder)
    drawn = torch.Generator().manual_seed(seed)
    tensors = load_file(_MODEL / "model.safetensors")
    save_file(
        {
            name: each.flatten()[torch.randperm(each.numel(), generator=drawn)].view_as(each)
            for name, each in tensors.items()
        },
        folder / "model.safetensors",
    )
    return folder


async def _hear(folder: Path, recordings: list[npt.NDArray[np.int16]]) -> list[dict[str, Any]]:
    """Return our transcripts."""
    options: Any = {"language": "en", "timestamps": "word", "settings": {"temperature": 0.0}}
    async with LocalEngine(folder, device="cpu", dtype="float32") as engine:
        return [(await engine.transcribe(_file(each), **options))["transcript"] for each in recordings]


def _file(samples: npt.NDArray[np.int16]) -> bytes:
    written = io.BytesIO()
    with wave.open(written, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(RATE)
        file.writeframes(samples.tobytes())
    return written.getvalue()


def _other_model(folder: Path) -> Any:
    """Return the model of a folder in openai-whisper, with the tokenizer of the demo's model."""
    whisper: Any = importlib.import_module("whisper")
    config = json.loads((_MODEL / "config.json").read_text())
    sizes = {
        "n_mels": config["num_mel_bins"],
        "n_audio_ctx": config["max_source_positions"],
        "n_vocab": config["vocab_size"],
        "n_text_ctx": config["max_target_positions"],
    }
    for side, part in (("audio", "encoder"), ("text", "decoder")):
        sizes[f"n_{side}_state"] = config["d_model"]
        sizes[f"n_{side}_head"] = config[f"{part}_attention_heads"]
        sizes[f"n_{side}_layer"] = config[f"{part}_layers"]
    model = whisper.model.Whisper(whisper.model.ModelDimensions(**sizes)).eval()
    tensors = load_file(folder / "model.safetensors")
    model.load_state_dict({_renamed(name): each.float() for name, each in tensors.items()}, strict=False)
    generation = json.loads((_MODEL / "generation_config.json").read_text())
    heads = torch.zeros(config["decoder_layers"], config["decoder_attention_heads"], dtype=torch.bool)
    for layer, head in generation["alignment_heads"]:
        heads[layer, head] = True
    model.register_buffer("alignment_heads", heads.to_sparse(), persistent=False)
    for module in ("whisper.transcribe", "whisper.decoding"):
        vars(importlib.import_module(module))["get_tokenizer"] = lambda *_, **__: _other_tokenizer()
    return model


def _renamed(name: str) -> str:
    for pattern, other in _NAMES:
        name = re.sub(pattern, other, name)
    return name


def _other_tokenizer() -> Any:
    tiktoken: Any = importlib.import_module("tiktoken")
    kept: Any = importlib.import_module("whisper.tokenizer")
    backend = tokenizers.Tokenizer.from_file(str(_MODEL / "tokenizer.json"))
    vocabulary = backend.get_vocab()
    controls = {spelling: token for spelling, token in vocabulary.items() if re.fullmatch(r"<\|.*\|>", spelling)}
    byte_of = _bytes_by_character()
    texts = {
        bytes(byte_of[character] for character in spelling): token
        for spelling, token in vocabulary.items()
        if spelling not in controls
    }
    encoding = tiktoken.Encoding("demo", pat_str=r"\s?\S+|\s+", mergeable_ranks=texts, special_tokens=controls)
    return kept.Tokenizer(encoding=encoding, num_languages=1, language="en", task="transcribe")


def _bytes_by_character() -> Mapping[str, int]:
    """Return the bytes that the characters of a byte-level tokenizer stand for: printable ones stand for themselves."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + at): byte for at, byte in enumerate(others)}


def _other(model: Any, samples: npt.NDArray[np.int16]) -> dict[str, Any]:
    """Return the transcript of openai-whisper."""
    found: dict[str, Any] = model.transcribe(
        samples.astype(np.float32) / 32768,
        language="en",
        temperature=0.0,
        fp16=False,
        word_timestamps=True,
        suppress_tokens="",  # the control tokens are always suppressed
        max_initial_timestamp=30.0,
    )
    return found


def _compare(ours: dict[str, Any], other: dict[str, Any], within: float) -> bool:
    """Print one recording's figures; return True if nothing differs by more than 0.02 seconds, a step of the times.

    Segments count if they have a text, and their window begins in the first `within` seconds.
    """
    one, two = (
        [each for each in found["segments"] if each["text"] and each["seek"] <= 100 * within] for found in (ours, other)
    )
    words = [each for segment in two for each in segment["words"]]
    our_words = [each for each in ours["words"] if one and each["start"] < one[-1]["end"]]
    same_texts = [each["text"] for each in one] == [each["text"] for each in two]
    same_words = [each["word"] for each in our_words] == [each["word"] for each in words]
    pairs = [*zip(one, two, strict=False), *zip(our_words, words, strict=False)]
    apart = [abs(left[name] - right[name]) for left, right in pairs for name in ("start", "end")]
    print(
        f"{ours['duration']:.1f} s, {len({each['seek'] for each in one})} windows, {len(one)} and {len(two)} segments, "
        f"texts the same: {same_texts}, {len(our_words)} and {len(words)} words, the same: {same_words}, "
        f"times apart by {max(apart, default=0.0):.3f} s at most, {sum(each > 0.001 for each in apart)} of {len(apart)}"
    )
    return same_texts and same_words and max(apart, default=0.0) <= 0.02 + 1e-6


if __name__ == "__main__":
    main()
