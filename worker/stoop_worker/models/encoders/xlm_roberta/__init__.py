"""XLM-RoBERTa: bge-m3 for vectors, bge-reranker-v2-m3 for scores.

family.py   loads either behind the engine's port
config.py   reads the sizes
weights.py  names, checks and merges the tensors
network.py  packed texts to hidden states, vectors and scores
"""

__all__: list[str] = []
