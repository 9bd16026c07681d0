"""The ids with a special meaning to a Whisper, looked up by their spelling."""

from collections.abc import Mapping
from dataclasses import dataclass

from stoop_worker.errors import CheckpointError
from stoop_worker.models.loading.tokenizer import Tokenizer
from stoop_worker.models.whisper.config import Generation

__all__ = ["ENGLISH", "STEP", "Vocabulary"]

STEP = 0.02
"""Seconds from one timestamp to the next."""

ENGLISH = "en"

_LAST_STAMP = 1500  # 30 s
_SYMBOLS = (
    *'"#()*+/:;<=>@[\\]^_`{|}~「」『』',
    *[
        "<<",
        ">>",
        "<<<",
        ">>>",
        "--",
        "---",
        "-(",
        "-[",
        "('",
        '("',
        "((",
        "))",
        "(((",
        ")))",
        "[[",
        "]]",
        "{{",
        "}}",
        "♪♪",
        "♪♪♪",
    ],
)
_NOTES = "♩♪♫♬♭♮♯"  # their first id stands for all of a note's, because each takes several


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Control ids, and the ids that are never drawn (`suppressed`), or never first (`suppressed_first`).

    `languages` has the ids of language codes, and is empty for a model that knows only English; such a model also has
    no use for `transcribe` and `translate`. Ids below `end` are text; ids from `first_stamp` to `last_stamp` are times.
    """

    end: int
    start: int
    before: int
    languages: Mapping[str, int]
    transcribe: int
    translate: int
    no_speech: int
    no_stamps: int
    first_stamp: int
    last_stamp: int
    suppressed: frozenset[int]
    suppressed_first: frozenset[int]

    @classmethod
    def of(cls, tokenizer: Tokenizer, generation: Generation, size: int) -> "Vocabulary":
        """Find the ids in a tokenizer for a model of `size` ids; raises `CheckpointError` if one is missing."""
        ids = tokenizer.specials

        def find(*spellings: str) -> int:
            for spelling in spellings:
                if spelling in ids:
                    return ids[spelling]
            raise CheckpointError(f"tokenizer.json lacks {spellings[0]}: it is not a Whisper's")

        end, start = find("<|endoftext|>"), find("<|startoftranscript|>")
        transcribe, translate = find("<|transcribe|>"), find("<|translate|>")
        no_speech, no_stamps = find("<|nospeech|>", "<|nocaptions|>"), find("<|notimestamps|>")
        before = find("<|startofprev|>")
        first_stamp = tokenizer.id_of("<|0.00|>")
        first_stamp = no_stamps + 1 if first_stamp is None else first_stamp
        if first_stamp + _LAST_STAMP >= size:
            raise CheckpointError(f"config: vocab_size is {size}, too few for timestamps from id {first_stamp} on")
        controls = {transcribe, translate, start, before, find("<|startoflm|>"), no_speech}
        suppressed = _non_speech(tokenizer) if generation.suppressed is None else set(generation.suppressed)
        first = generation.suppressed_first
        return cls(
            end=end,
            start=start,
            before=before,
            languages=_languages(tokenizer, start + 1, min(transcribe, translate)) if generation.multilingual else {},
            transcribe=transcribe,
            translate=translate,
            no_speech=no_speech,
            no_stamps=no_stamps,
            first_stamp=first_stamp,
            last_stamp=first_stamp + _LAST_STAMP,
            suppressed=frozenset(suppressed | controls),
            suppressed_first=frozenset((*tokenizer.tokenize(" "), end) if first is None else first),
        )

    def is_stamp(self, token: int) -> bool:
        """Return whether an id is a timestamp."""
        return token >= self.first_stamp

    def seconds(self, stamp: int) -> float:
        """Return the time of a timestamp, from the window's beginning."""
        return round((stamp - self.first_stamp) * STEP, 2)


def _languages(tokenizer: Tokenizer, first: int, after: int) -> dict[str, int]:
    """Return the languages, whose control tokens lie between the start and the tasks."""
    named = {number: spelling for spelling, number in tokenizer.specials.items()}
    return {named[number].strip("<|>"): number for number in range(first, after) if number in named}


def _non_speech(tokenizer: Tokenizer) -> set[int]:
    """Return the ids of unspoken signs: brackets, quotes, notes, and a dash or quote before a word."""
    found = {tokenizer.tokenize(" -")[0], tokenizer.tokenize(" '")[0]}
    for symbol in (*_SYMBOLS, *_NOTES):
        for ids in (tokenizer.tokenize(symbol), tokenizer.tokenize(f" {symbol}")):
            if len(ids) == 1 or symbol in _NOTES:
                found.add(ids[0])
    return found
