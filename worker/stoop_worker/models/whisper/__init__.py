"""Whisper: speech to text, in the language spoken or in English.

family.py           the engine's port
model.py            loads a model with its tokenizer
config.py           reads the sizes and the defaults of generation
tokenizer_files.py  reads tokenizer.json, or the older files of some fine-tunes
weights.py          names, checks and merges the tensors
vocabulary.py       the ids with a meaning
encoder.py          log-mel frames to the states of a window
decoder.py          the decoder over the KV cache
memory.py           the window in the KV cache, and what tokens attend to
rules.py            the rules by which ids are drawn
prompt.py           checks a request, and lays out its inputs
skill.py            detects the language, and draws the text id by id
segments.py         cuts the ids of a window into segments
alignment.py        hears where each id of a text is
dtw.py              the cheapest way through a matrix
words.py            words and their times
"""

__all__: list[str] = []
