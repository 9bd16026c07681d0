"""Reads model files, for any family.

download.py     finds a model: a folder, a weight file, or a repository at a pinned revision
options.py      the device and dtypes to load it with
config_file.py  reads config.json strictly
checkpoint.py   reads tensors under the names that a family gives them
tokenizer.py    converts text to ids and back
"""

__all__: list[str] = []
