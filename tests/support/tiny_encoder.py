"""Tiny random encoders as checkpoints on disk: every trait of the real ones, in a few hundred kilobytes."""

import json
from pathlib import Path
from typing import Any

import tokenizers
import torch
from safetensors.torch import save_file
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers
from torch import Tensor

__all__ = ["BGE_M3", "GEMMA", "PROMPTS", "RERANKER", "write_encoder"]

_LINES = (
    "the cat sat on the mat and looked at the dog",
    "what is the capital of france",
    "paris is the capital of france and its largest city",
    "a falcon dives on many birds at once",
    "numbers such as 12 and 345 are words too",
)

BGE_M3: dict[str, Any] = {
    "architectures": ["XLMRobertaModel"],
    "model_type": "xlm-roberta",
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "vocab_size": 160,
    "max_position_embeddings": 130,
    "type_vocab_size": 1,
    "layer_norm_eps": 1e-5,
    "hidden_act": "gelu",
    "pad_token_id": 1,
    "bos_token_id": 0,
    "eos_token_id": 2,
}

RERANKER: dict[str, Any] = {
    **BGE_M3,
    "architectures": ["XLMRobertaForSequenceClassification"],
    "id2label": {"0": "LABEL_0"},
}

GEMMA: dict[str, Any] = {
    "architectures": ["Gemma3TextModel"],
    "model_type": "gemma3_text",
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 7,
    "num_attention_heads": 3,
    "num_key_value_heads": 1,
    "head_dim": 32,
    "vocab_size": 160,
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-6,
    "query_pre_attn_scalar": 32,
    "hidden_activation": "gelu_pytorch_tanh",
    "attention_bias": False,
    "sliding_window": 16,
    "use_bidirectional_attention": True,
    "rope_theta": 1000000.0,
    "rope_local_base_freq": 10000.0,
}

PROMPTS = {"query": "task: search result | query: ", "document": "title: none | text: "}


def write_encoder(folder: Path, config: dict[str, Any], *, seed: int = 1) -> Path:
    """Write a model of these sizes to a folder, and return the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    random = torch.Generator().manual_seed(seed)
    (folder / "config.json").write_text(json.dumps({**config, "stoop": {"name": "tiny", "untrained": True}}))
    if config is GEMMA:
        _write_gemma_tokenizer(folder)
        save_file(_gemma(config, random), folder / "model.safetensors")
        for layer, shape in (("2_Dense", (96, 48)), ("3_Dense", (48, 96))):
            (folder / layer).mkdir()
            save_file({"linear.weight": _linear(random, *shape)}, folder / layer / "model.safetensors")
        (folder / "config_sentence_transformers.json").write_text(json.dumps({"prompts": PROMPTS}))
        _write_pooling(folder, "mean_tokens")
        return folder
    _write_roberta_tokenizer(folder)
    tensors = _roberta(config, random)
    if config is BGE_M3:
        # a pickle, as the released weights are
        torch.save(tensors, folder / "pytorch_model.bin")
        for name, rows in (("sparse_linear", 1), ("colbert_linear", config["hidden_size"])):
            head = {"weight": _linear(random, rows, config["hidden_size"]), "bias": torch.full((rows,), 0.1)}
            torch.save(head, folder / f"{name}.pt")
        _write_pooling(folder, "cls_token")
        return folder
    prefixed = {name if name.startswith("classifier.") else f"roberta.{name}": each for name, each in tensors.items()}
    save_file(prefixed, folder / "model.safetensors")
    return folder


def _write_pooling(folder: Path, kind: str) -> None:
    (folder / "1_Pooling").mkdir()
    settings = {f"pooling_mode_{each}": each == kind for each in ("cls_token", "mean_tokens", "max_tokens")}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(settings))


def _write_roberta_tokenizer(folder: Path) -> None:
    tokenizer = tokenizers.Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    specials = ["<s>", "<pad>", "</s>", "<unk>"]
    trainer = trainers.UnigramTrainer(vocab_size=150, special_tokens=specials, unk_token="<unk>", show_progress=False)
    tokenizer.train_from_iterator(_LINES, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    tokenizer.save(str(folder / "tokenizer.json"))


def _write_gemma_tokenizer(folder: Path) -> None:
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    trainer = trainers.BpeTrainer(
        vocab_size=150, special_tokens=["<pad>", "<eos>", "<bos>", "<unk>"], show_progress=False
    )
    tokenizer.train_from_iterator([*_LINES, *PROMPTS.values()], trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<bos> $A <eos>", special_tokens=[("<bos>", 2), ("<eos>", 1)]
    )
    tokenizer.save(str(folder / "tokenizer.json"))


def _linear(random: torch.Generator, out: int, into: int) -> Tensor:
    return torch.randn(out, into, generator=random) / into**0.5


def _roberta(config: dict[str, Any], random: torch.Generator) -> dict[str, Tensor]:
    dim, inner = config["hidden_size"], config["intermediate_size"]
    tensors: dict[str, Tensor] = {}

    def add(name: str, weight: Tensor) -> None:
        tensors[f"{name}.weight"] = weight
        tensors[f"{name}.bias"] = 0.1 * torch.randn(weight.shape[0], generator=random)

    def add_norm(name: str) -> None:
        add(name, 1 + 0.1 * torch.randn(dim, generator=random))

    for name, rows in (
        ("word", "vocab_size"),
        ("position", "max_position_embeddings"),
        ("token_type", "type_vocab_size"),
    ):
        tensors[f"embeddings.{name}_embeddings.weight"] = torch.randn(config[rows], dim, generator=random)
    add_norm("embeddings.LayerNorm")
    for layer in range(config["num_hidden_layers"]):
        prefix = f"encoder.layer.{layer}."
        for part in ("self.query", "self.key", "self.value", "output.dense"):
            add(f"{prefix}attention.{part}", _linear(random, dim, dim))
        add_norm(f"{prefix}attention.output.LayerNorm")
        add(f"{prefix}intermediate.dense", _linear(random, inner, dim))
        add(f"{prefix}output.dense", _linear(random, dim, inner))
        add_norm(f"{prefix}output.LayerNorm")
    if config["architectures"] == ["XLMRobertaModel"]:
        add("pooler.dense", _linear(random, dim, dim))
    else:
        add("classifier.dense", _linear(random, dim, dim))
        add("classifier.out_proj", _linear(random, 1, dim))
    return tensors


def _gemma(config: dict[str, Any], random: torch.Generator) -> dict[str, Tensor]:
    dim, inner, head = config["hidden_size"], config["intermediate_size"], config["head_dim"]
    heads, key_heads = config["num_attention_heads"], config["num_key_value_heads"]

    def norm(width: int) -> Tensor:
        return 0.1 * torch.randn(width, generator=random)

    tensors = {
        "embed_tokens.weight": torch.randn(config["vocab_size"], dim, generator=random),
        "norm.weight": norm(dim),
    }
    for layer in range(config["num_hidden_layers"]):
        made = {
            "input_layernorm": norm(dim),
            "post_attention_layernorm": norm(dim),
            "pre_feedforward_layernorm": norm(dim),
            "post_feedforward_layernorm": norm(dim),
            "self_attn.q_norm": norm(head),
            "self_attn.k_norm": norm(head),
            "self_attn.q_proj": _linear(random, heads * head, dim),
            "self_attn.k_proj": _linear(random, key_heads * head, dim),
            "self_attn.v_proj": _linear(random, key_heads * head, dim),
            "self_attn.o_proj": _linear(random, dim, heads * head),
            "mlp.gate_proj": _linear(random, inner, dim),
            "mlp.up_proj": _linear(random, inner, dim),
            "mlp.down_proj": _linear(random, dim, inner),
        }
        tensors |= {f"layers.{layer}.{name}.weight": tensor for name, tensor in made.items()}
    return tensors
