"""Tokenizers and chat templates for random models: every id is a word, so that a text identifies its tokens."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from benchmarks.engine.full_size import word_tokenizer

__all__ = ["CONTROLS", "FIRST_WORD", "write_language"]

CONTROLS: Final = (
    "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<|image_pad|>",
    "<|video_pad|>",
)  # fmt: skip
"""The control tokens of chat models, by their ids."""

FIRST_WORD: Final = len(CONTROLS) + 256
"""The first id of a word, after the control tokens and the bytes."""

_TEMPLATE: Final = """
{%- for message in messages %}
    {{- '<|im_start|>' + message.role + '\\n' }}
    {%- if message.content is string %}
        {{- message.content }}
    {%- else %}
        {%- for part in message.content %}
            {{- '<|vision_start|><|image_pad|><|vision_end|>' if part.type == 'image' else part.text }}
        {%- endfor %}
    {%- endif %}
    {{- '<|im_end|>\\n' }}
{%- endfor %}
{{- '<|im_start|>assistant\\n' }}
"""


def write_language(folder: Path, document: Mapping[str, Any]) -> None:
    """Write the tokenizer and the template of a chat model; the character of a prompt is a token."""
    text = document.get("text_config", document)
    (folder / "tokenizer.json").write_text(word_tokenizer(text["vocab_size"], CONTROLS).document(), encoding="utf-8")
    (folder / "chat_template.jinja").write_text(_TEMPLATE, encoding="utf-8")
    ends = [CONTROLS.index("<|im_end|>"), CONTROLS.index("<|endoftext|>")]
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": ends}))
