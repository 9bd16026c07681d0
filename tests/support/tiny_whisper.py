"""Tiny random Whispers as checkpoints on disk: every id and every trait of the real ones, in a few megabytes."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tokenizers
import torch
from safetensors.torch import save_file
from torch import Tensor

__all__ = ["CONFIG", "TinyWhisper", "write_whisper"]

_LANGUAGES = ("en", "zh", "de", "es", "ru")
_STAMPS = 1501
_TEXTS = 300  # ids of text

CONFIG: dict[str, Any] = {
    "architectures": ["WhisperForConditionalGeneration"],
    "model_type": "whisper",
    "activation_function": "gelu",
    "d_model": 64,
    "num_mel_bins": 80,
    "encoder_layers": 2,
    "encoder_attention_heads": 2,
    "encoder_ffn_dim": 96,
    "decoder_layers": 3,
    "decoder_attention_heads": 2,
    "decoder_ffn_dim": 80,
    "max_source_positions": 1500,
    "max_target_positions": 448,
    "scale_embedding": False,
    "tie_word_embeddings": True,
}


@dataclass(frozen=True)
class TinyWhisper:
    """A model's folder, and its ids by their spelling."""

    folder: Path
    ids: dict[str, int]


def write_whisper(folder: Path, *, multilingual: bool = True, seed: int = 1, **sizes: int) -> TinyWhisper:
    """Write a model, whose sizes differ from `CONFIG` by `sizes`, to a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    ids = _write_tokenizer(folder)
    named = {
        "decoder_start_token_id": ids["<|startoftranscript|>"],
        "bos_token_id": ids["<|endoftext|>"],
        "eos_token_id": ids["<|endoftext|>"],
        "pad_token_id": ids["<|endoftext|>"],
        "vocab_size": ids["<|0.00|>"] + _STAMPS,
    }
    config = {**CONFIG, **named, **sizes, "stoop": {"name": "tiny", "untrained": True}}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "generation_config.json").write_text(json.dumps(_generation(ids, named, multilingual=multilingual)))
    save_file(_tensors(config, torch.Generator().manual_seed(seed)), folder / "model.safetensors")
    return TinyWhisper(folder, ids)


def _write_tokenizer(folder: Path) -> dict[str, int]:
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=_TEXTS, initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    sentences = ["the cat sat on the mat, and then it ran to the door", "what is the answer to that question?"]
    tokenizer.train_from_iterator(sentences * 3, trainer)
    controls = (
        "endoftext", "startoftranscript", *_LANGUAGES, "translate", "transcribe", "startoflm", "startofprev",
        "nospeech", "notimestamps",
    )  # fmt: skip
    specials = [f"<|{control}|>" for control in controls]
    tokenizer.add_special_tokens(specials)
    tokenizer.add_tokens([tokenizers.AddedToken(f"<|{0.02 * n:.2f}|>", special=False) for n in range(_STAMPS)])
    tokenizer.save(str(folder / "tokenizer.json"))
    known = tokenizer.get_vocab()
    return {spelling: known[spelling] for spelling in (*specials, "<|0.00|>")}


def _generation(ids: dict[str, int], named: dict[str, int], *, multilingual: bool) -> dict[str, Any]:
    controls = ("transcribe", "translate", "startoftranscript", "startofprev", "startoflm", "nospeech")
    document = {
        **{name: value for name, value in named.items() if name != "vocab_size"},
        "is_multilingual": multilingual,
        "no_timestamps_token_id": ids["<|notimestamps|>"],
        "prev_sot_token_id": ids["<|startofprev|>"],
        "suppress_tokens": sorted([5, 17, *(ids[f"<|{control}|>"] for control in controls)]),
        "begin_suppress_tokens": [220 % _TEXTS, ids["<|endoftext|>"]],
        "max_initial_timestamp_index": 50,
        "max_length": 448,
        "alignment_heads": [[1, 0], [2, 1]],
    }
    if multilingual:
        document["lang_to_id"] = {f"<|{code}|>": ids[f"<|{code}|>"] for code in _LANGUAGES}
        document["task_to_id"] = {task: ids[f"<|{task}|>"] for task in ("transcribe", "translate")}
    return document


def _tensors(config: dict[str, Any], random: torch.Generator) -> dict[str, Tensor]:
    dim = config["d_model"]
    tensors: dict[str, Tensor] = {}

    def linear(name: str, *shape: int, bias: bool = True) -> None:
        fan_in = shape[1] * (shape[2] if len(shape) == 3 else 1)
        tensors[f"{name}.weight"] = torch.randn(*shape, generator=random) / fan_in**0.5
        if bias:
            tensors[f"{name}.bias"] = 0.1 * torch.randn(shape[0], generator=random)

    def norm(name: str) -> None:
        tensors[f"{name}.weight"] = 1 + 0.1 * torch.randn(dim, generator=random)
        tensors[f"{name}.bias"] = 0.1 * torch.randn(dim, generator=random)

    def attention(name: str) -> None:
        for part in "qkv":
            linear(f"{name}.{part}_proj", dim, dim, bias=part != "k")
        linear(f"{name}.out_proj", dim, dim)
        norm(f"{name}_layer_norm")

    def layer(name: str, inner: int, *kinds: str) -> None:
        for kind in kinds:
            attention(f"{name}.{kind}")
        linear(f"{name}.fc1", inner, dim)
        linear(f"{name}.fc2", dim, inner)
        norm(f"{name}.final_layer_norm")

    linear("model.encoder.conv1", dim, config["num_mel_bins"], 3)
    linear("model.encoder.conv2", dim, dim, 3)
    tensors["model.encoder.embed_positions.weight"] = torch.randn(config["max_source_positions"], dim, generator=random)
    for number in range(config["encoder_layers"]):
        layer(f"model.encoder.layers.{number}", config["encoder_ffn_dim"], "self_attn")
    norm("model.encoder.layer_norm")
    tensors["model.decoder.embed_tokens.weight"] = torch.randn(config["vocab_size"], dim, generator=random)
    tensors["model.decoder.embed_positions.weight"] = torch.randn(config["max_target_positions"], dim, generator=random)
    for number in range(config["decoder_layers"]):
        layer(f"model.decoder.layers.{number}", config["decoder_ffn_dim"], "self_attn", "encoder_attn")
    norm("model.decoder.layer_norm")
    # both signs, otherwise the tied head repeats one id for ever
    tensors["model.decoder.layer_norm.weight"] = torch.randn(dim, generator=random)
    return tensors
