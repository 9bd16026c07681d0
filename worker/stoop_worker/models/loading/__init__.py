"""Reads model files, for any family.

download.py       finds a model: a folder, a weight file, or a repository at a pinned revision
options.py        the device and dtypes to load it with
config_file.py    reads config.json strictly
generation.py     reads generation_config.json
checkpoint.py     reads tensors under the names that a family gives them
block_fp8.py      reads block-wise float8 weights, and converts them or keeps them
digest.py         identifies a model in cache keys
tokenizer.py      converts text to ids and back
chat_template.py  runs the model's own chat template
sandbox/          bounds what such a template can do
chat_prompt.py    converts messages to ids
"""

__all__: list[str] = []
