"""Qwen3-VL: the decoder of `decoder/`, with any number of images anywhere in a chat.

family.py     the port's functions
model.py      loads a model
config.py     reads the sizes
weights.py    names and checks the tensors of the vision encoder
vision.py     the vision encoder
places.py     the positions and angles of an image's patches
encoder.py    the images of a step, by graphs of their sizes
prompt.py     a chat with images to inputs and positions of three axes
"""

__all__: list[str] = []
