"""Tiny random Llamas and Qwen3s as checkpoints on disk: every trait of the real ones, in a few hundred kilobytes."""

import json
from pathlib import Path
from typing import Any

import tokenizers
import torch
from safetensors.torch import save_file
from torch import Tensor

__all__ = [
    "LLAMA",
    "LLAMA_TEMPLATE",
    "QWEN3",
    "QWEN_TEMPLATE",
    "QWEN_VL",
    "VOCABULARY",
    "write_decoder",
    "write_language",
    "write_qwen_vl",
]

VOCABULARY = 320
_SPECIALS = (
    "<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>",
    "<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|vision_start|>", "<|vision_end|>", "<|image_pad|>",
)  # fmt: skip

LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "vocab_size": VOCABULARY,
    "max_position_embeddings": 2048,
    "rms_norm_eps": 1e-5,
    "rope_theta": 500000.0,
    "rope_scaling": {
        "rope_type": "llama3",
        "factor": 32.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
    },
    "tie_word_embeddings": True,
    "attention_bias": False,
    "mlp_bias": False,
    "hidden_act": "silu",
    "torch_dtype": "bfloat16",
}

QWEN3: dict[str, Any] = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "hidden_size": 128,
    "intermediate_size": 160,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "vocab_size": VOCABULARY,
    "max_position_embeddings": 2048,
    "rms_norm_eps": 1e-6,
    "rope_theta": 5000000.0,
    "rope_scaling": None,
    "tie_word_embeddings": False,
    "attention_bias": False,
    "use_sliding_window": False,
    "hidden_act": "silu",
}

QWEN_VL: dict[str, Any] = {
    "architectures": ["Qwen3VLForConditionalGeneration"],
    "model_type": "qwen3_vl",
    "tie_word_embeddings": False,
    "text_config": {
        **{name: value for name, value in QWEN3.items() if name != "architectures"},
        "model_type": "qwen3_vl_text",
        "head_dim": 16,
        "rope_scaling": {"rope_type": "default", "mrope_section": [4, 2, 2], "mrope_interleaved": True},
    },
    "vision_config": {
        "model_type": "qwen3_vl",
        "depth": 4,
        "hidden_size": 64,
        "hidden_act": "gelu_pytorch_tanh",
        "intermediate_size": 96,
        "num_heads": 2,
        "in_channels": 3,
        "patch_size": 16,
        "spatial_merge_size": 2,
        "temporal_patch_size": 2,
        "out_hidden_size": 128,
        "num_position_embeddings": 36,
        "deepstack_visual_indexes": [0, 1, 2],
    },
}

LLAMA_TEMPLATE = """
{{- bos_token }}
{%- if not date_string is defined %}
    {%- if strftime_now is defined %}
        {%- set date_string = strftime_now("%d %b %Y") %}
    {%- else %}
        {%- set date_string = "26 Jul 2024" %}
    {%- endif %}
{%- endif %}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}
{{- "<|start_header_id|>system<|end_header_id|>\\n\\n" }}
{{- "Today Date: " + date_string + "\\n\\n" }}
{{- system_message }}
{{- "<|eot_id|>" }}
{%- for message in messages %}
    {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n'+ message['content'] | trim + '<|eot_id|>' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif %}
"""

QWEN_TEMPLATE = """
{%- for message in messages %}
    {%- if message.content is string %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}
    {%- else %}
        {{- '<|im_start|>' + message.role + '\\n' }}
        {%- for content in message.content %}
            {%- if content.type == 'image' or 'image' in content or 'image_url' in content %}
                {{- '<|vision_start|><|image_pad|><|vision_end|>' }}
            {%- elif 'text' in content %}
                {{- content.text }}
            {%- endif %}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
"""


def write_decoder(folder: Path, config: dict[str, Any], *, seed: int = 1) -> Path:
    """Write a model of these sizes to a folder, and return the folder."""
    template = LLAMA_TEMPLATE if config["model_type"] == "llama" else QWEN_TEMPLATE
    ids = write_language(folder, template)
    ends = [ids["<|eot_id|>"], ids["<|end_of_text|>"]] if config["model_type"] == "llama" else [ids["<|im_end|>"]]
    (folder / "config.json").write_text(json.dumps({**config, "stoop": {"name": "tiny", "untrained": True}}))
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": ends}))
    save_file(_tensors(config, torch.Generator().manual_seed(seed)), folder / "model.safetensors")
    return folder


def write_qwen_vl(folder: Path, *, seed: int = 1) -> Path:
    """Write a tiny Qwen3-VL to a folder, and return the folder."""
    ids = write_language(folder, QWEN_TEMPLATE)
    named = {"image_token_id": ids["<|image_pad|>"], "vision_start_token_id": ids["<|vision_start|>"]}
    text = {**QWEN_VL["text_config"], "eos_token_id": ids["<|im_end|>"]}
    ends = {"vision_end_token_id": ids["<|vision_end|>"], "video_token_id": VOCABULARY - 1}
    card = {"name": "tiny", "untrained": True}
    config = {**QWEN_VL, **named, **ends, "text_config": text, "stoop": card}
    (folder / "config.json").write_text(json.dumps(config))
    size = {"shortest_edge": 4096, "longest_edge": 1 << 24}
    (folder / "preprocessor_config.json").write_text(json.dumps({"size": size, "patch_size": 16, "merge_size": 2}))
    random = torch.Generator().manual_seed(seed)
    text_tensors = _tensors(text, random)
    head = {name: text_tensors.pop(name) for name in ["lm_head.weight"]}
    renamed = {name.replace("model.", "model.language_model.", 1): each for name, each in text_tensors.items()}
    visual = {f"model.visual.{name}": each for name, each in _visual(QWEN_VL["vision_config"], random).items()}
    save_file({**renamed, **visual, **head}, folder / "model.safetensors")
    return folder


def _visual(config: dict[str, Any], random: torch.Generator) -> dict[str, Tensor]:
    dim, inner, out = config["hidden_size"], config["intermediate_size"], config["out_hidden_size"]
    tensors: dict[str, Tensor] = {
        "patch_embed.proj.weight": torch.randn(dim, 3, 2, 16, 16, generator=random) / 1536**0.5,
        "patch_embed.proj.bias": 0.1 * torch.randn(dim, generator=random),
        "pos_embed.weight": 0.5 * torch.randn(config["num_position_embeddings"], dim, generator=random),
    }

    def linear(name: str, width: int, into: int) -> None:
        tensors[f"{name}.weight"] = torch.randn(width, into, generator=random) / into**0.5
        tensors[f"{name}.bias"] = 0.1 * torch.randn(width, generator=random)

    def norm(name: str, width: int) -> None:
        tensors[f"{name}.weight"] = 1 + 0.1 * torch.randn(width, generator=random)
        tensors[f"{name}.bias"] = 0.1 * torch.randn(width, generator=random)

    for layer in range(config["depth"]):
        name = f"blocks.{layer}"
        norm(f"{name}.norm1", dim)
        norm(f"{name}.norm2", dim)
        linear(f"{name}.attn.qkv", 3 * dim, dim)
        linear(f"{name}.attn.proj", dim, dim)
        linear(f"{name}.mlp.linear_fc1", inner, dim)
        linear(f"{name}.mlp.linear_fc2", dim, inner)
    for name, width in [("merger", dim), *((f"deepstack_merger_list.{index}", 4 * dim) for index in range(3))]:
        norm(f"{name}.norm", width)
        linear(f"{name}.linear_fc1", 4 * dim, 4 * dim)
        linear(f"{name}.linear_fc2", out, 4 * dim)
    return tensors


def write_language(folder: Path, template: str) -> dict[str, int]:
    """Write a tokenizer of bytes and special tokens, and a template; return the ids of the special tokens."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=256 + len(_SPECIALS) + 20, special_tokens=list(_SPECIALS), initial_alphabet=alphabet,
        show_progress=False,
    )  # fmt: skip
    tokenizer.train_from_iterator(["the cat sat on the mat", "what is the answer to that question"], trainer)
    tokenizer.save(str(folder / "tokenizer.json"))
    names = {"bos_token": "<|begin_of_text|>", "eos_token": "<|im_end|>"}
    kind = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False}
    (folder / "tokenizer_config.json").write_text(json.dumps({**names, **kind}))
    (folder / "chat_template.jinja").write_text(template)
    return {spelling: tokenizer.token_to_id(spelling) for spelling in _SPECIALS}


def _tensors(config: dict[str, Any], random: torch.Generator) -> dict[str, Tensor]:
    dim, inner, head = config["hidden_size"], config["intermediate_size"], config["head_dim"]
    heads, key_heads = config["num_attention_heads"], config["num_key_value_heads"]

    def linear(out: int, into: int) -> Tensor:
        return torch.randn(out, into, generator=random) / into**0.5

    def norm(width: int) -> Tensor:
        return 1 + 0.1 * torch.randn(width, generator=random)

    tensors = {
        "model.embed_tokens.weight": torch.randn(VOCABULARY, dim, generator=random),
        "model.norm.weight": torch.randn(dim, generator=random),
    }
    if not config["tie_word_embeddings"]:
        tensors["lm_head.weight"] = linear(VOCABULARY, dim)
    for layer in range(config["num_hidden_layers"]):
        made = {
            "input_layernorm": norm(dim),
            "self_attn.q_proj": linear(heads * head, dim),
            "self_attn.k_proj": linear(key_heads * head, dim),
            "self_attn.v_proj": linear(key_heads * head, dim),
            "self_attn.o_proj": linear(dim, heads * head),
            "post_attention_layernorm": norm(dim),
            "mlp.gate_proj": linear(inner, dim),
            "mlp.up_proj": linear(inner, dim),
            "mlp.down_proj": linear(dim, inner),
        }
        if config["model_type"].startswith("qwen3"):
            made |= {"self_attn.q_norm": norm(head), "self_attn.k_norm": norm(head)}
        tensors |= {f"model.layers.{layer}.{name}.weight": tensor for name, tensor in made.items()}
    return tensors
