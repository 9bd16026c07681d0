"""embeddinggemma: Gemma 3's layers with attention in both directions.

family.py   loads it behind the engine's port
config.py   reads the sizes
weights.py  names, checks and merges the tensors
network.py  packed texts to vectors
"""

__all__: list[str] = []
