"""A merged decode step under adapters against the plain layers under them, for every layer that can have adapters."""

import torch
from torch import Tensor

from stoop_worker.engine.tensors import KVView
from stoop_worker.kernels.moe import ExpertAdapter
from stoop_worker.kernels.paged_attention import PagedLayout
from stoop_worker.kernels.rotate_write import rotation_table
from stoop_worker.models.moondream import decode_text, text
from stoop_worker.models.moondream.decode_lora import RowAdapters
from stoop_worker.models.moondream.lora import Adapter, BlockAdapters, Corrections
from stoop_worker.models.moondream.weights import MoE, TextBlock
from tests.engine.micro import MICRO3, micro_moondream3

ROWS, PAGE, COUNT, RANKS = 4, 4, 2, (3, 2)


def drawn(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64) / shape[-1] ** 0.5


def corrections_of(block: TextBlock) -> BlockAdapters:
    """Return corrections by two adapters; the columns of number 0 are not read."""

    def pair(out: int, width: int, *experts: int) -> tuple[Tensor, Tensor]:
        columns = RANKS[bool(experts)] * (COUNT + 1)
        return drawn(*experts, columns, width), drawn(*experts, columns, out)

    dim, inner = MICRO3.text.dim, MICRO3.text.ff_dim
    linears = {"qkv": Adapter(*pair(3 * dim, dim)), "proj": Adapter(*pair(dim, dim))}
    if not isinstance(block.mlp, MoE):
        return BlockAdapters(linears | {"fc1": Adapter(*pair(inner, dim)), "fc2": Adapter(*pair(dim, inner))})
    experts, up, width = block.mlp.up.weight_EOI.shape
    pairs = *pair(up, width, experts), *pair(width, up // 2, experts)
    return BlockAdapters(linears, ExpertAdapter(*pairs, rank=RANKS[1]))


def view() -> KVView:
    """Return the third position of each sequence, and a pool whose earlier positions are zeros."""
    positions_B = torch.full((ROWS,), 2)
    layout = PagedLayout(
        cu_seqlens_B1=torch.arange(ROWS + 1, dtype=torch.int32),
        context_lens_B=torch.full((ROWS,), 3, dtype=torch.int32),
        page_table_BP=torch.arange(ROWS, dtype=torch.int32)[:, None],
        prefix_lens_B=torch.zeros(ROWS, dtype=torch.int32),
        cu_seqlens=tuple(range(ROWS + 1)),
        context_lens=(3,) * ROWS,
        prefix_lens=(0,) * ROWS,
        page_size=PAGE,
    )
    sizes = MICRO3.text
    pool = torch.zeros(sizes.n_layers, 2, ROWS, PAGE, sizes.n_heads, sizes.head_dim, dtype=torch.float64)
    return KVView(positions_B, PAGE * torch.arange(ROWS) + 2, layout, pool, lambda: None)


def test_a_merged_step_corrects_every_layer() -> None:
    torch.manual_seed(0)
    sizes = MICRO3.text
    rotations_SF2 = rotation_table(
        sizes.max_context, sizes.rotary_dim, sizes.rope_theta, torch.device("cpu"), dtype=torch.float64
    )
    weights = micro_moondream3.__wrapped__().weights.text
    x_BC, numbers_B = drawn(ROWS, sizes.dim), torch.tensor([1, 0, 2, 1])
    blocks = [corrections_of(block) for block in weights.blocks]
    corrections = Corrections.of(blocks, numbers_B, count=COUNT + 1, rank=RANKS[0], like=x_BC)
    plain, kept = view(), view()
    expected = text.forward(x_BC, plain, weights, rotations_SF2, corrections=corrections)
    without = text.forward(x_BC, view(), weights, rotations_SF2)
    adapters = RowAdapters(blocks, numbers_B, RANKS)
    found = decode_text.step(x_BC, kept, decode_text.merge(weights), rotations_SF2, adapters=adapters)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(kept.pool, plain.pool)
    assert ((found - without).abs().amax(dim=1) > 1e-3).tolist() == (numbers_B > 0).tolist()
