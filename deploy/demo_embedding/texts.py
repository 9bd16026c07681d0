"""The file that a training of the embedder reads: meanings with their sentences as ids.

python -m deploy.demo_embedding.texts texts
"""

import argparse
import json
from pathlib import Path
from random import Random

import tokenizers
from tokenizers.processors import TemplateProcessing

from deploy.demo_embedding.meanings import Meaning, draw

__all__ = ["all_meanings"]

_SPECIALS = ("<s>", "<pad>", "</s>", "<unk>")
_VOCABULARY = 700
_DRAWS = 60_000


def all_meanings() -> list[Meaning]:
    """Return all meanings, sorted."""
    random = Random(0)
    return sorted({draw(random) for _ in range(_DRAWS)}, key=lambda meaning: meaning.features)


def _tokenizer(meanings: list[Meaning]) -> tokenizers.Tokenizer:
    """Train a Unigram tokenizer that puts <s> and </s> around a text, as XLM-RoBERTa's does."""
    tokenizer = tokenizers.Tokenizer(tokenizers.models.Unigram())
    tokenizer.normalizer = tokenizers.normalizers.Sequence(
        [tokenizers.normalizers.NFKC(), tokenizers.normalizers.Lowercase()]
    )
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace()
    tokenizer.decoder = tokenizers.decoders.Metaspace()
    trainer = tokenizers.trainers.UnigramTrainer(
        vocab_size=_VOCABULARY, special_tokens=list(_SPECIALS), unk_token="<unk>", show_progress=False
    )
    letters = [
        f"{one} {two}" for one in "abcdefghijklmnopqrstuvwxyzäöüß0123456789" for two in "abcdefghijklmnopqrstuvwxyz"
    ]
    texts = [text for meaning in meanings for text in (*meaning.english, *meaning.german)]
    tokenizer.train_from_iterator([*texts, *letters], trainer)
    tokenizer.post_processor = TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    return tokenizer


def main() -> None:
    """Write `texts.json` and `tokenizer.json`."""
    parser = argparse.ArgumentParser(prog="deploy.demo_embedding.texts", description="Write the texts of a training.")
    parser.add_argument("folder", type=Path)
    folder: Path = parser.parse_args().folder
    meanings = all_meanings()
    tokenizer = _tokenizer([meaning for meaning in meanings if not meaning.is_held_out])
    rows = [
        [
            meaning.features,
            *([tokenizer.encode(text).ids for text in texts] for texts in (meaning.english, meaning.german)),
        ]
        for meaning in meanings
        if not meaning.is_held_out
    ]
    folder.mkdir(parents=True, exist_ok=True)
    document = {"vocabulary": tokenizer.get_vocab_size(), "meanings": rows}
    (folder / "texts.json").write_text(json.dumps(document, separators=(",", ":")))
    tokenizer.save(str(folder / "tokenizer.json"), pretty=False)
    print(f"{len(rows)} meanings of {len(meanings)}, {tokenizer.get_vocab_size()} ids")


if __name__ == "__main__":
    main()
