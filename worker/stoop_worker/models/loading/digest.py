"""A digest that identifies a model in cache keys."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

__all__ = ["digest_of"]


def digest_of(document: Mapping[str, Any], tensors: Mapping[str, Tensor], files: tuple[Path, ...], witness: str) -> str:
    """Digest the config, names, shapes, dtypes, file sizes, and the values of the small tensor `witness`.

    All of this is cheap to read, unlike the weights.
    """
    facts = (
        document,
        sorted((name, list(tensor.shape), str(tensor.dtype)) for name, tensor in tensors.items()),
        [path.stat().st_size for path in files],
        tensors[witness].detach().double().cpu().tolist(),
    )
    return hashlib.blake2b(json.dumps(facts, sort_keys=True, default=str).encode(), digest_size=16).hexdigest()
