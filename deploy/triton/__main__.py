"""Writes the model's configuration from the table of inputs: `python -m deploy.triton`."""

from pathlib import Path
from typing import Final

from stoop.gateway.kserve.inputs import INPUTS, MODEL_NAME, OUTPUT, Input

__all__ = ["CONFIG", "config_text"]

CONFIG: Final = Path(__file__).parent / "model_repository" / MODEL_NAME / "config.pbtxt"

_HEAD: Final = f"""\
# Written by `python -m deploy.triton` from producer/stoop/gateway/kserve/inputs.py.
name: "{MODEL_NAME}"
backend: "python"
# each job is one request: the workers make the batches
max_batch_size: 0
model_transaction_policy {{ decoupled: true }}
# one event loop serves any number of requests at once, and needs no GPU
instance_group [ {{ kind: KIND_CPU count: 1 }} ]
"""


def config_text() -> str:
    """Return the configuration as text of Protocol Buffers."""
    inputs = ",\n".join(map(_described, INPUTS.values()))
    return f"{_HEAD}input [\n{inputs}\n]\noutput [\n{_described(Input(OUTPUT, 'BYTES', 'skill'))}\n]\n"


def _described(each: Input) -> str:
    datatype = "STRING" if each.datatype == "BYTES" else each.datatype
    optional = " optional: true" if each.optional else ""
    (length,) = each.dims
    return f'  {{ name: "{each.name}" data_type: TYPE_{datatype} dims: [ {length} ]{optional} }}'


if __name__ == "__main__":
    CONFIG.write_text(config_text(), encoding="utf-8")
