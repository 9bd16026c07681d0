"""The tokenizer: byte-level BPE with Whisper's control tokens and timestamps."""

from collections.abc import Iterable

import tokenizers

from deploy.demo_hearing.lessons import Lesson

__all__ = ["STAMPS", "demo_tokenizer"]

LANGUAGES = ("en", "de")
STAMPS = 1501
_TEXT = 640  # ids of text at most
_CONTROLS = (
    "endoftext", "startoftranscript", *LANGUAGES, "translate", "transcribe", "startoflm", "startofprev", "nospeech",
    "notimestamps",
)  # fmt: skip


def demo_tokenizer(lessons: Iterable[Lesson]) -> tuple[tokenizers.Tokenizer, dict[str, int]]:
    """Train on sentences; return the tokenizer, and the ids of control tokens and of the first timestamp, "0.00"."""
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=_TEXT,
        min_frequency=4,
        initial_alphabet=sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    texts = (f" {text}" for lesson in lessons for text in (lesson.english, lesson.german))
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.add_special_tokens([f"<|{name}|>" for name in _CONTROLS])
    stamps = [f"{0.02 * number:.2f}" for number in range(STAMPS)]
    tokenizer.add_tokens([tokenizers.AddedToken(f"<|{stamp}|>", special=False) for stamp in stamps])
    return tokenizer, {name: tokenizer.token_to_id(f"<|{name}|>") for name in (*_CONTROLS, "0.00")}
