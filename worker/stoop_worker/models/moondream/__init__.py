"""Moondream 2 and 3, as functions over weights, behind the engine's port.

family.py        the port's functions
model.py         a loaded model, and loading one
files.py         reads the configuration and the tokenizer
sections.py      finds the four sections in config.json
config.py        a configuration, read from config.json
config_parts.py  sizes, token ids and prompt templates
config_check.py  checks that a configuration describes a possible model
weights.py       all tensors, arranged as the functions need them
shapes.py        the name and shape of every tensor in a checkpoint
names.py         maps the tensor names of released and older files
fp8.py           quantises weights to fp8
vision.py        the vision encoder
encoder.py       runs the vision encoder over the images of a step
crops.py         cuts crops on the device
text.py          the text model over the KV cache
decode_text.py   the text model on one position per sequence, with fused products
statistics.py    the temperatures, keys and values of one prompt
tau.py           the learned temperature of Moondream 3's attention
moe.py           the mixture of experts in Moondream 3's later layers
lora.py          corrections of the text model's layers by adapters
decode_lora.py   the same in a merged decode step, each row by its own adapter alone
adapters/        the adapters that there are, and their numbers in a batch
region.py        coordinates and sizes in embeddings and hidden states
values.py        coordinates and sizes as inputs and head values
prompt.py        turns tasks into prompts
chat.py          takes a chat about one image for a query
checks.py        checks that Moondream can do a task
skills/          one object per sequence that turns tokens into outputs
"""

__all__: list[str] = []
