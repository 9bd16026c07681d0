"""Makes the demo's embedder checkpoint from the result of a training.

python -m deploy.demo_embedding.export texts run deploy/demo_embedding/model
"""

import argparse
import json
import shutil
from pathlib import Path

import torch
from safetensors.torch import save_file

from deploy.demo_embedding.train import DIM, FIRST_POSITION, HEADS, LAYERS, POSITIONS

__all__ = ["export"]


def export(texts: Path, run: Path, out: Path) -> None:
    """Write the files that a released XLM-RoBERTa has, and those that describe how its vectors are made."""
    tensors = torch.load(run / "embedder.pt", weights_only=True)["tensors"]
    config = {
        "architectures": ["XLMRobertaModel"],
        "model_type": "xlm-roberta",
        "hidden_size": DIM,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "intermediate_size": 4 * DIM,
        "hidden_act": "gelu",
        "layer_norm_eps": 1e-5,
        "max_position_embeddings": POSITIONS,
        "type_vocab_size": 1,
        "vocab_size": len(tensors["embeddings.word_embeddings.weight"]),
        "bos_token_id": 0,
        "pad_token_id": FIRST_POSITION - 1,
        "eos_token_id": 2,
        "torch_dtype": "float16",
        "stoop": {"name": "demo-embedding"},
    }
    pooling = {"word_embedding_dimension": DIM, "pooling_mode_cls_token": True}
    out.mkdir(parents=True, exist_ok=True)
    (out / "1_Pooling").mkdir(exist_ok=True)
    (out / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    (out / "1_Pooling" / "config.json").write_text(json.dumps(pooling, indent=2) + "\n")
    shutil.copyfile(texts / "tokenizer.json", out / "tokenizer.json")
    save_file(tensors, out / "model.safetensors", {"format": "pt"})


def main() -> None:
    """Make the checkpoint."""
    parser = argparse.ArgumentParser(prog="deploy.demo_embedding.export", description="Make the demo's checkpoint.")
    for name in ("texts", "run", "out"):
        parser.add_argument(name, type=Path)
    arguments = parser.parse_args()
    export(arguments.texts, arguments.run, arguments.out)


if __name__ == "__main__":
    main()
