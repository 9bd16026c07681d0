"""LoRA adapters from files, and their numbers in a batch. `lora.py`, next to this folder, applies them.

files.py    reads one adapter's file
numbers.py  an adapter's number and key, and the port that hands numbers out
bank.py     all adapters of a folder, read at the start
resident.py a few adapters at a time, read when a request names one
"""

from stoop_worker.models.moondream.adapters.bank import AdapterBank, read_adapters
from stoop_worker.models.moondream.adapters.numbers import AdapterPositions, Adapters
from stoop_worker.models.moondream.adapters.resident import ResidentAdapters

__all__ = ["AdapterBank", "AdapterPositions", "Adapters", "ResidentAdapters", "read_adapters"]
