"""Makes the demo's Whisper checkpoint from the result of a training.

python -m deploy.demo_hearing.export bank run deploy/demo_hearing/model
"""

import argparse
import json
import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from deploy.demo_hearing.network import POSITIONS, STATES, Sizes
from deploy.demo_hearing.tokens import LANGUAGES, STAMPS

__all__ = ["export"]


def export(bank: Path, run: Path, out: Path) -> None:
    """Write the files that a released Whisper has."""
    controls: dict[str, int] = json.loads((bank / "clips.json").read_text(encoding="utf-8"))["controls"]
    trained = torch.load(run / "weights.pt", weights_only=True)
    sizes = Sizes(**trained["sizes"])
    out.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(bank / "tokenizer.json", out / "tokenizer.json")
    ends = {
        "bos_token_id": controls["endoftext"],
        "decoder_start_token_id": controls["startoftranscript"],
        "eos_token_id": controls["endoftext"],
        "pad_token_id": controls["endoftext"],
    }
    documents = {
        "config.json": _config(sizes, controls) | ends,
        "generation_config.json": _generation(sizes, controls) | ends,
        "preprocessor_config.json": _preprocessor(sizes),
    }
    for name, document in documents.items():
        (out / name).write_text(json.dumps(document, indent=2) + "\n")
    save_file(trained["tensors"], out / "model.safetensors", {"format": "pt"})


def _config(sizes: Sizes, controls: dict[str, int]) -> dict[str, Any]:
    return {
        "architectures": ["WhisperForConditionalGeneration"],
        "model_type": "whisper",
        "activation_function": "gelu",
        "d_model": sizes.dim,
        "num_mel_bins": sizes.mels,
        "encoder_layers": sizes.encoder_layers,
        "encoder_attention_heads": sizes.heads,
        "encoder_ffn_dim": 4 * sizes.dim,
        "decoder_layers": sizes.layers,
        "decoder_attention_heads": sizes.heads,
        "decoder_ffn_dim": 4 * sizes.dim,
        "max_source_positions": STATES,
        "max_target_positions": POSITIONS,
        "vocab_size": controls["0.00"] + STAMPS,
        "scale_embedding": False,
        "tie_word_embeddings": True,
        "torch_dtype": "float16",
        "stoop": {"name": "demo-hearing"},
    }


def _generation(sizes: Sizes, controls: dict[str, int]) -> dict[str, Any]:
    tasks = ("transcribe", "translate")
    never = ("startoftranscript", *tasks, "startoflm", "startofprev", "nospeech")
    return {
        "is_multilingual": True,
        "lang_to_id": {f"<|{code}|>": controls[code] for code in LANGUAGES},
        "task_to_id": {task: controls[task] for task in tasks},
        "no_timestamps_token_id": controls["notimestamps"],
        "prev_sot_token_id": controls["startofprev"],
        "suppress_tokens": sorted(controls[name] for name in never),
        "begin_suppress_tokens": [controls["endoftext"]],
        "max_initial_timestamp_index": STAMPS - 1,
        "max_length": POSITIONS,
        # the head that the training guides to the word that is written next
        "alignment_heads": [[sizes.layers - 1, 0]],
    }


def _preprocessor(sizes: Sizes) -> dict[str, Any]:
    return {
        "feature_extractor_type": "WhisperFeatureExtractor",
        "processor_class": "WhisperProcessor",
        "chunk_length": 30,
        "feature_size": sizes.mels,
        "hop_length": 160,
        "n_fft": 400,
        "n_samples": 480_000,
        "nb_max_frames": 3000,
        "padding_side": "right",
        "padding_value": 0.0,
        "return_attention_mask": False,
        "sampling_rate": 16_000,
    }


def main() -> None:
    """Make the checkpoint."""
    parser = argparse.ArgumentParser(prog="deploy.demo_hearing.export", description="Make the demo's checkpoint.")
    for name in ("bank", "run", "out"):
        parser.add_argument(name, type=Path)
    arguments = parser.parse_args()
    export(arguments.bank, arguments.run, arguments.out)


if __name__ == "__main__":
    main()
