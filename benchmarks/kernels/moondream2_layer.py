"""Times a layer of Moondream 2's decode step, bfloat16, at a context of 900, whose kernels all start early.

In the library's column the first product is cuBLAS's, and no kernel of more than 16 rows starts early. One row is
all layers in one launch, against four launches a layer. The alternatives are both forms with attention by tensor cores,
and without.
"""

from functools import partial

import torch
from torch import Tensor

from benchmarks.kernels.moondream_layer import HEAD_DIM, LAYERS, WIDTH, made, replaced, view
from benchmarks.kernels.row import Row, check, microseconds_captured
from stoop_worker.kernels.paged_attention import grouped_decode
from stoop_worker.kernels.rotate_write import rotation_table
from stoop_worker.models.blocks.layers import LayerNorm, Linear
from stoop_worker.models.moondream import decode_text
from stoop_worker.models.moondream.decode_text import MergedBlock

__all__ = ["alternatives", "rows"]

INNER, CONTEXT = 8192, 900
COUNTS = (17, 24, 32, 33, 40, 48, 56, 64)
ALWAYS, NEVER = 0, 1 << 30  # the fewest rows that start in line, and the fewest heads that tensor cores take


def block() -> MergedBlock:
    first, second = 3 * WIDTH + INNER, WIDTH + INNER
    return MergedBlock(
        LayerNorm(made(WIDTH), made(WIDTH)),
        Linear(made(first, WIDTH, scale=WIDTH**-0.5), made(first)),
        Linear(made(WIDTH, second, scale=second**-0.5), made(WIDTH)),
    )


class Step:
    """Layers and places for `count` rows, and the step through them."""

    def __init__(self, blocks: tuple[MergedBlock, ...], count: int) -> None:
        self.count, self._blocks = count, blocks
        self._x_BC, self._kv = made(count, WIDTH), view(count)
        self._table_SF2 = rotation_table(1024, HEAD_DIM // 2, 1.5e6, torch.device("cuda"))

    def run(self, least_rows: int, least_heads: int) -> Tensor:
        with (
            replaced(decode_text, "_LEAST_IN_LINE", least_rows),
            replaced(grouped_decode, "_FULL_GRID", least_heads),
        ):
            return decode_text.step(self._x_BC, self._kv, self._blocks, self._table_SF2)

    def row(self, least_rows: int, least_heads: int) -> Row:
        """Return the time of a layer against one whose kernels do not start early, with attention of the same kind."""
        check(self.run(least_rows, least_heads), self.run(NEVER, NEVER).clone(), 2e-2)
        ours_us, plain_us = (
            microseconds_captured([partial(self.run, least, least_heads)]) / LAYERS for least in (least_rows, NEVER)
        )
        attention = {ALWAYS: ", tensor cores", NEVER: ", no tensor cores"}.get(least_heads, "")
        return Row(f"a layer of Moondream 2{attention}", f"{self.count} x {CONTEXT}", ours_us, plain_us, "apart", "")

    def whole(self) -> Row:
        """Return the time of a layer of one row with all layers in one launch, against four launches a layer."""
        stack = decode_text.stack_of(self._blocks)
        calls = (
            partial(decode_text.in_one_launch, self._x_BC, self._kv, stack, self._table_SF2),
            partial(decode_text.step, self._x_BC, self._kv, self._blocks, self._table_SF2),
        )
        check(calls[0](), calls[1]().clone(), 2e-2)
        ours_us, theirs_us = (microseconds_captured([call]) / LAYERS for call in calls)
        return Row(
            "a layer of Moondream 2, in one launch of all", f"1 x {CONTEXT}", ours_us, theirs_us, "four launches", ""
        )


def rows() -> list[Row]:
    """Return each number of rows."""
    blocks = tuple(block() for _ in range(LAYERS))
    return [
        Step(blocks, 1).whole(),
        *(Step(blocks, count).row(ALWAYS, grouped_decode._FULL_GRID) for count in COUNTS),
    ]


def alternatives() -> list[Row]:
    """Return both kinds of attention for each number of rows."""
    blocks = tuple(block() for _ in range(LAYERS))
    steps = [Step(blocks, count) for count in COUNTS]
    return [step.row(ALWAYS, least_heads) for step in steps for least_heads in (ALWAYS, NEVER)]
