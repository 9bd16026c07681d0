"""Compiles kernels for Hopper without a device, for `tests/kernels`.

Triton's interpreter accepts kernels that its compiler refuses.

TRITON_INTERPRET=0 python -m tests.support.compiled_kernels
"""

from collections.abc import Iterator, Mapping
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from stoop_worker.kernels.low_rank import kernel as low_rank
from stoop_worker.kernels.moe import corrections, products

__all__ = ["main"]

HOPPER = GPUTarget("cuda", 90, 32)
NUMBERS, WEIGHTS, SUMS = "*i64", "*bf16", "*fp32"
TYPES = {
    **dict.fromkeys(("listed_ptr", "starts_ptr", "experts_ptr", "tiles_ptr", "rows_ptr"), "*i32"),
    **dict.fromkeys(("x_stride", "out_stride", "count"), "i32"),
    **dict.fromkeys(("thin_ptr", "parts_ptr", "first_parts_ptr", "last_parts_ptr"), SUMS),
    "numbers_ptr": NUMBERS,
}
EXPERTS = {"P": 128, "K": 8, "K_BLOCK": 8, "E": 64, "E_BLOCK": 64, "IN_ORDER": False, "R": 18}
PRODUCT = {"PAIRS": 16, "ROWS": 32, "COLUMNS": 128, "STAGES": 3, "HELD": 1, "SCALED": False, "ROWS_SCALED": False}
EXACT = {"PRECISION": "tf32", "EARLY": True}


def cases() -> Iterator[tuple[Any, Mapping[str, object]]]:
    """Return the kernels of adapters, each with its constants."""
    for own in (0, 2):
        sizes = {"R_BLOCK": 32, "OWN": own, **PRODUCT, **EXACT}
        yield products._up, {**EXPERTS, **sizes, "N": 1024, "WIDTH": 2048}
        yield products._down, {**EXPERTS, **sizes, "N": 2048, "WIDTH": 1024}
    thin = {"WIDTH": 2048, "RANK": 2, "OF_TOKENS": True}
    yield corrections._thin, {**EXPERTS, **EXACT, **thin, "R_BLOCK": 32, "PAIRS": 16, "COLUMNS": 128}
    own = {"K": 8, "IN_ORDER": False, "R": 18, "RANK_BLOCK": 2, "COLUMNS": 2048, "EARLY": True}
    yield corrections._own_thin, {**thin, **own}
    yield low_rank._group, {"S": 9, "S_BLOCK": 16, "B_BLOCK": 64, "TILE": 16}
    rank = {"RANK": 16, "RANK_BLOCK": 16, "TILE": 16, **EXACT}
    yield low_rank._thin, {**rank, "I": 2048, "PART": 512, "STEP": 128}
    widths = {"FIRST_WIDTH": 2048, "LAST_WIDTH": 2048, "FIRST_BLOCKS": 8, "FIRST_PARTS": 4, "LAST_PARTS": 16}
    for summed in (False, True):
        sums = {"FIRST": 0, "LAST": 0 if summed else 2048, "SUMMED": summed, "FRESH": summed, "COLUMNS": 256}
        yield low_rank._correct, {**rank, **widths, **sums}


def main() -> None:
    """Compile each kernel and print its name."""
    for kernel, constants in cases():
        names = kernel.arg_names
        # thin values that dots multiply have the dtype of the weights
        types = TYPES if constants.get("OWN", 1) else {**TYPES, "thin_ptr": WEIGHTS}
        signature = {name: "constexpr" if name in constants else types.get(name, WEIGHTS) for name in names}
        places = {(names.index(name),): value for name, value in constants.items()}
        triton.compile(ASTSource(kernel, signature, places, {}), target=HOPPER)
        print(kernel.__name__)


if __name__ == "__main__":
    main()
