"""A second family, as small as one can be, that shares nothing with Moondream: it shows that the port is one.

    sizes.py      its sizes
    weights.py    its tensors, made up from a seed
    prompt.py     a question, with images anywhere in it, to inputs and positions of two axes
    skill.py      a query: tokens to text
    text.py       a pre-norm decoder with grouped heads, over the KV cache
    family.py     the port's functions
    questions.py  what it is asked
    naive.py      the same model once more in plain torch, one request after another: what answers are checked against

A prompt is made of numbers, which are its tokens, and of the marker <image>: "5 70001 <image> 9 <image> 3".
"""

__all__: list[str] = []
