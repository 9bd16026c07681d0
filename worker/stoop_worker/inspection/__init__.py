"""`stoop inspect`: what a checkpoint holds and needs, without loading it; with a prompt, how its layers respond.

command.py  the command line
weights.py  counts parameters and bytes by part and dtype
facts.py    the facts about one checkpoint, and the memory it needs
show.py     prints them for a person
"""

__all__: list[str] = []
