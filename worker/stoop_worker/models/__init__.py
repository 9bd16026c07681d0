"""The models.

families.py  chooses the family that runs a model
catalog.py   reads the short names from catalog.toml
loading/     reads the files of any family
blocks/      the layers that two families share
moondream/   Moondream 2
decoder/     Llama 3.2 and Qwen3
qwen_vl/     Qwen3-VL
encoders/    bge-m3, bge-reranker-v2-m3 and embeddinggemma
whisper/     Whisper: speech to text

README.md explains how to add a family.
"""

__all__: list[str] = []
