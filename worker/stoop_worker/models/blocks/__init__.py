"""The blocks that several families share.

layers.py  linear layers, layer norms and MLPs, plain or in fp8
"""

__all__: list[str] = []
