"""Tokenizers and chat templates for random models: every id is a word, so that a text identifies its tokens."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import tokenizers
from tokenizers import decoders, models, pre_tokenizers, processors

from benchmarks.engine.full_size import spell, word_tokenizer

__all__ = ["CONTROLS", "WHISPER_CONTROLS", "words_of", "write_language"]

CONTROLS: Final = (
    "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<|image_pad|>",
    "<|video_pad|>",
)  # fmt: skip
"""The control tokens of chat models, by their ids."""

WHISPER_CONTROLS: Final = tuple(
    f"<|{name}|>"
    for name in (
        *("endoftext", "startoftranscript", "en", *(f"l{number}" for number in range(99))),
        *("translate", "transcribe", "startoflm", "startofprev", "nospeech", "notimestamps"),
    )
)
"""The control tokens of a Whisper, in the order of their ids, which follow those of text."""

_BYTES: Final = 256
_STAMPS: Final = 1501
_TEXT_CONTROLS: Final = {
    "xlm-roberta": ("<s>", "<pad>", "</s>", "<unk>"),
    "gemma3_text": ("<pad>", "<eos>", "<bos>", "<unk>"),
}
_FRAMINGS: Final = {"xlm-roberta": ("<s>", "</s>"), "gemma3_text": ("<bos>", "<eos>")}

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


def words_of(document: Mapping[str, Any]) -> range:
    """Return the ids that are words; the others are control tokens, bytes and times."""
    size: int = document.get("text_config", document)["vocab_size"]
    match document["model_type"]:
        case "whisper":
            return range(_BYTES, size - _STAMPS - len(WHISPER_CONTROLS))
        case kind if kind in _TEXT_CONTROLS:
            return range(len(_TEXT_CONTROLS[kind]), size)
    return range(len(CONTROLS) + _BYTES, size)


def write_language(folder: Path, document: Mapping[str, Any]) -> None:
    """Write the tokenizer of a model and, for a chat model, its template; a character of a prompt is a token."""
    words = words_of(document)
    if document["model_type"] in _TEXT_CONTROLS:
        (folder / "tokenizer.json").write_text(_text_tokenizer(document["model_type"], words), encoding="utf-8")
        return
    if document["model_type"] == "whisper":
        _write_whisper(folder, words)
        return
    (folder / "tokenizer.json").write_text(word_tokenizer(words.stop, CONTROLS).document(), encoding="utf-8")
    (folder / "chat_template.jinja").write_text(_TEMPLATE, encoding="utf-8")
    ends = [CONTROLS.index("<|im_end|>"), CONTROLS.index("<|endoftext|>")]
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": ends}))


def _write_whisper(folder: Path, words: range) -> None:
    """Write a tokenizer of bytes, words, control tokens and times; only the rules of times suppress anything."""
    backend = tokenizers.Tokenizer.from_str(word_tokenizer(words.stop, ()).document())
    backend.add_special_tokens([tokenizers.AddedToken(each, special=True) for each in WHISPER_CONTROLS])
    stamps = [f"<|{0.02 * number:.2f}|>" for number in range(_STAMPS)]
    backend.add_tokens([tokenizers.AddedToken(each, special=False) for each in stamps])
    backend.save(str(folder / "tokenizer.json"))
    rules = {"is_multilingual": True, "suppress_tokens": [], "begin_suppress_tokens": []}
    (folder / "generation_config.json").write_text(json.dumps(rules))


def _text_tokenizer(kind: str, words: range) -> str:
    """Return a tokenizer with one piece a word, and the family's tokens around a text."""
    controls = _TEXT_CONTROLS[kind]
    pieces = [(each, 0.0) for each in controls] + [(f"▁{spell(token)}", -10.0) for token in words]
    backend = tokenizers.Tokenizer(models.Unigram(pieces, unk_id=controls.index("<unk>")))
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    backend.decoder = decoders.Metaspace()
    backend.add_special_tokens([tokenizers.AddedToken(each, special=True) for each in controls])
    first, last = _FRAMINGS[kind]
    backend.post_processor = processors.TemplateProcessing(
        single=f"{first} $A {last}", special_tokens=[(each, controls.index(each)) for each in (first, last)]
    )
    return str(backend.to_str())
