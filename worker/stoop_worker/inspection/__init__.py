"""`stoop inspect`: a checkpoint's contents and memory, without loading it; with a prompt, the responses of its layers.

command.py  the command line
headers.py  fetches the headers of a repository's weights, and not the weights
weights.py  counts parameters and bytes by part and dtype
facts.py    the facts about one checkpoint, and the memory it needs
show.py     prints them for a person
"""

__all__: list[str] = []
