"""Llama 3.2 and Qwen3: pre-norm decoders with grouped heads, that answer chats.

family.py   the engine's port
model.py    loads a model with its tokenizer and template
config.py   reads the sizes
weights.py  names, checks and merges the tensors
text.py     the decoder over the KV cache
decode_text.py  a decode step in fewer launches
prompt.py   checks a chat, and turns it into the template's input
skill.py    writes an answer token by token
"""

__all__: list[str] = []
