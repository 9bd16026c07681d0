"""Encoders: models that read whole texts, for vectors of texts and for scores of documents.

loaded.py       a loaded network, its facts, and how it runs
text_ids.py     texts and pairs of texts to ids
embedder.py     the engine's port for vectors of texts
reranker.py     the engine's port for scores of documents
xlm_roberta/    bge-m3 and bge-reranker-v2-m3
gemma/          embeddinggemma
"""

__all__: list[str] = []
