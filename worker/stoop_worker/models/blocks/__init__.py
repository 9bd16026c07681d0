"""The blocks that several families share.

layers.py            linear layers, layer norms and MLPs, plain or in fp8
rope.py              the angles of rotary positions
pixels.py            sends the pixels of images to the device
token_embedding.py   the embeddings of the tokens that a decode step reads
packed_attention.py  full attention within each of several packed texts
"""

__all__: list[str] = []
