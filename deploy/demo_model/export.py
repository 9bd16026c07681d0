"""Makes the demo's checkpoint from the state of a training.

python -m deploy.demo_model.export run deploy/demo_model/model
"""

import sys
from pathlib import Path

from deploy.demo_model.recipe import demo_config
from deploy.demo_model.state import load_state
from deploy.demo_model.untrained import write_model
from stoop_worker.models.loading.tokenizer import Tokenizer
from stoop_worker.models.moondream.shapes import tensor_shapes

__all__ = ["export"]


def export(state: Path, folder: Path) -> None:
    """Write config.json, model.safetensors in bfloat16 and tokenizer.json, without tensors for training only."""
    stored, _, progress = load_state(state)
    tokenizer = Tokenizer(progress.tokenizer)
    config = demo_config(tokenizer)
    tensors = {name: stored[name].bfloat16() for name in tensor_shapes(config)}
    card = {"name": "demo", "steps": progress.steps, "scenes": progress.scenes}
    write_model(folder, config, tensors, tokenizer, card=card)
    print(f"wrote {folder}: {(folder / 'model.safetensors').stat().st_size / 2**20:.1f} MiB of weights")


if __name__ == "__main__":
    export(*map(Path, sys.argv[1:3]))
