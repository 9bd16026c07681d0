"""The config.json of each model as released, and of a tiny one with the same traits."""

from collections.abc import Mapping
from typing import Any, Final

__all__ = ["MODELS", "TINY", "document_of"]

TINY: Final = "-tiny"
"""The end of the name of a tiny model."""

_DECODER: Final = {
    "hidden_act": "silu",
    "attention_bias": False,
    "tie_word_embeddings": True,
    "num_key_value_heads": 8,
}

_LLAMA: Final = {
    **_DECODER,
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 128_256,
    "max_position_embeddings": 131_072,
    "rms_norm_eps": 1e-5,
    "rope_theta": 500_000.0,
    "rope_scaling": {
        "rope_type": "llama3",
        "factor": 32.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    },
    "mlp_bias": False,
    "intermediate_size": 8192,
}

_QWEN: Final = {
    **_DECODER,
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "vocab_size": 151_936,
    "max_position_embeddings": 262_144,
    "rms_norm_eps": 1e-6,
    "rope_theta": 5_000_000.0,
    "head_dim": 128,
    "use_sliding_window": False,
    "hidden_size": 2560,
    "intermediate_size": 9728,
    "num_hidden_layers": 36,
    "num_attention_heads": 32,
}

_QWEN_VL: Final = {
    "architectures": ["Qwen3VLForConditionalGeneration"],
    "model_type": "qwen3_vl",
    "tie_word_embeddings": True,
    "image_token_id": 5,
    "video_token_id": 6,
    "vision_start_token_id": 3,
    "vision_end_token_id": 4,
    "text_config": {
        **{name: value for name, value in _QWEN.items() if name not in ("architectures", "model_type")},
        "model_type": "qwen3_vl_text",
        "rope_scaling": {"rope_type": "default", "mrope_section": [24, 20, 20], "mrope_interleaved": True},
    },
    "vision_config": {
        "model_type": "qwen3_vl",
        "depth": 24,
        "hidden_size": 1024,
        "hidden_act": "gelu_pytorch_tanh",
        "intermediate_size": 4096,
        "num_heads": 16,
        "in_channels": 3,
        "patch_size": 16,
        "spatial_merge_size": 2,
        "temporal_patch_size": 2,
        "out_hidden_size": 2560,
        "num_position_embeddings": 2304,
        "deepstack_visual_indexes": [5, 11, 17],
    },
}

_FP8: Final = {
    "quantization_config": {
        "quant_method": "fp8",
        "activation_scheme": "dynamic",
        "fmt": "e4m3",
        "weight_block_size": [128, 128],
    }
}

_WHISPER: Final = {
    "architectures": ["WhisperForConditionalGeneration"],
    "model_type": "whisper",
    "activation_function": "gelu",
    "d_model": 1280,
    "num_mel_bins": 128,
    "encoder_layers": 32,
    "encoder_attention_heads": 20,
    "encoder_ffn_dim": 5120,
    "decoder_layers": 32,
    "decoder_attention_heads": 20,
    "decoder_ffn_dim": 5120,
    "vocab_size": 51_866,
    "max_source_positions": 1500,
    "max_target_positions": 448,
    "scale_embedding": False,
    "tie_word_embeddings": True,
    **dict.fromkeys(("pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id"), 0),
}

MODELS: Final[Mapping[str, Mapping[str, Any]]] = {
    "llama-1b": {**_LLAMA, "hidden_size": 2048, "num_hidden_layers": 16, "num_attention_heads": 32, "head_dim": 64},
    "llama-3b": {**_LLAMA, "hidden_size": 3072, "num_hidden_layers": 28, "num_attention_heads": 24, "head_dim": 128},
    "qwen3-4b": _QWEN,
    "qwen3-4b-fp8": {**_QWEN, **_FP8},
    "qwen3-vl-4b": _QWEN_VL,
    "whisper-large-v3": _WHISPER,
    "whisper-large-v3-turbo": {**_WHISPER, "decoder_layers": 4},
    "whisper-39m": {
        **_WHISPER,
        "d_model": 384,
        "num_mel_bins": 80,
        "encoder_layers": 4,
        "encoder_attention_heads": 6,
        "encoder_ffn_dim": 1536,
        "decoder_layers": 4,
        "decoder_attention_heads": 6,
        "decoder_ffn_dim": 1536,
        "vocab_size": 51_865,
    },
    "bge-m3": {
        "architectures": ["XLMRobertaModel"],
        "model_type": "xlm-roberta",
        "hidden_size": 1024,
        "intermediate_size": 4096,
        "num_hidden_layers": 24,
        "num_attention_heads": 16,
        "vocab_size": 250_002,
        "max_position_embeddings": 8194,
        "type_vocab_size": 1,
        "layer_norm_eps": 1e-5,
        "hidden_act": "gelu",
        "pad_token_id": 1,
        "bos_token_id": 0,
        "eos_token_id": 2,
    },
    "embeddinggemma": {
        "architectures": ["Gemma3TextModel"],
        "model_type": "gemma3_text",
        "hidden_size": 768,
        "intermediate_size": 1152,
        "num_hidden_layers": 24,
        "num_attention_heads": 3,
        "num_key_value_heads": 1,
        "head_dim": 256,
        "vocab_size": 262_144,
        "max_position_embeddings": 2048,
        "rms_norm_eps": 1e-6,
        "query_pre_attn_scalar": 256,
        "hidden_activation": "gelu_pytorch_tanh",
        "attention_bias": False,
        "sliding_window": 512,
        "use_bidirectional_attention": True,
        "rope_theta": 1_000_000.0,
        "rope_local_base_freq": 10_000.0,
    },
}
"""The released sizes. With "-tiny" behind its name, a model has the sizes of `_TINY_SIZES`."""

_TINY_TEXT: Final = {
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "vocab_size": 1024,
}

_TINY_SIZES: Final[Mapping[str, Mapping[str, Any]]] = {
    "llama": _TINY_TEXT,
    "qwen3": _TINY_TEXT,
    "whisper": {
        "d_model": 64,
        "encoder_layers": 2,
        "encoder_attention_heads": 2,
        "encoder_ffn_dim": 96,
        "decoder_layers": 2,
        "decoder_attention_heads": 2,
        "decoder_ffn_dim": 96,
        "vocab_size": 2265,
    },
    "xlm-roberta": {
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "vocab_size": 1024,
    },
    "gemma3_text": {
        "hidden_size": 48,
        "intermediate_size": 80,
        "num_hidden_layers": 7,
        "head_dim": 32,
        "query_pre_attn_scalar": 32,
        "sliding_window": 16,
        "vocab_size": 1024,
    },
    "qwen3_vl": {
        "text_config": {
            **_TINY_TEXT,
            "rope_scaling": {"rope_type": "default", "mrope_section": [16, 8, 8], "mrope_interleaved": True},
        },
        "vision_config": {
            "depth": 4,
            "hidden_size": 64,
            "intermediate_size": 96,
            "num_heads": 2,
            "out_hidden_size": 128,
            "num_position_embeddings": 36,
            "deepstack_visual_indexes": [0, 1, 2],
        },
    },
}


def document_of(name: str) -> dict[str, Any]:
    """Return the contents of a model's config.json; `name` is a key of `MODELS`, or one with "-tiny" behind it."""
    document = dict(MODELS[name.removesuffix(TINY)])
    if not name.endswith(TINY):
        return document
    for field, size in _TINY_SIZES[document["model_type"]].items():
        document[field] = {**document[field], **size} if isinstance(size, dict) else size
    return document
