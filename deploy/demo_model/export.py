"""Make the demo's checkpoint of a training's state.

python -m deploy.demo.export run deploy/demo/model
"""

import sys
from pathlib import Path

from deploy.demo.recipe import demo_config
from deploy.demo.state import load_state
from deploy.demo.untrained import write_model
from worker.model.tokenizer import Tokenizer
from worker.model.weights import tensor_shapes

__all__ = ["export"]


def export(state: Path, folder: Path) -> None:
    """Write config.json, model.safetensors in bfloat16 and tokenizer.json, without what only training needs."""
    stored, _, progress = load_state(state)
    tokenizer = Tokenizer(progress.tokenizer)
    config = demo_config(tokenizer)
    tensors = {name: stored[name].bfloat16() for name in tensor_shapes(config)}
    card = {"name": "demo", "steps": progress.steps, "scenes": progress.scenes}
    write_model(folder, config, tensors, tokenizer, card=card)
    print(f"wrote {folder}: {(folder / 'model.safetensors').stat().st_size / 2**20:.1f} MiB of weights")


if __name__ == "__main__":
    export(*map(Path, sys.argv[1:3]))
