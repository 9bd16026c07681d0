import pytest
import torch

from stoop_worker.engine.tensors import KVView
from stoop_worker.kernels.paged_attention import PagedLayout
from stoop_worker.kernels.rotate_write import rotation_table
from stoop_worker.models.moondream import text
from stoop_worker.models.moondream.fp8 import in_fp8
from stoop_worker.models.moondream.weights import TextWeights
from tests.support.tiny_model import tiny_moondream

MODEL = tiny_moondream()
CONFIG = MODEL.config.text
COUNT, PAGE = 7, 4
ROTATIONS_SF2 = rotation_table(CONFIG.max_context, CONFIG.rotary_dim, CONFIG.rope_theta, torch.device("cpu"))


def view() -> KVView:
    """Return an empty pool, and places in it for a sequence of `COUNT` positions."""
    used = -(-COUNT // PAGE)
    layout = PagedLayout(
        cu_seqlens_B1=torch.tensor([0, COUNT], dtype=torch.int32),
        context_lens_B=torch.tensor([COUNT], dtype=torch.int32),
        page_table_BP=torch.arange(used, dtype=torch.int32)[None],
        prefix_lens_B=torch.tensor([3], dtype=torch.int32),
        cu_seqlens=(0, COUNT),
        context_lens=(COUNT,),
        prefix_lens=(3,),
        page_size=PAGE,
    )
    return KVView(
        positions_T=torch.arange(COUNT),
        slots_T=torch.arange(COUNT),
        layout=layout,
        pool=torch.zeros(CONFIG.n_layers, 2, used, PAGE, CONFIG.n_heads, CONFIG.head_dim),
        on_progress=lambda: None,
    )


@pytest.mark.parametrize("weights", [MODEL.weights.text, in_fp8(MODEL.weights).text], ids=["plain", "fp8"])
def test_wanted_rows_are_those_of_all_and_all_are_kept(weights: TextWeights) -> None:
    x_TC = torch.randn(COUNT, CONFIG.dim, generator=torch.Generator().manual_seed(0))
    whole, some = view(), view()
    expected = text.forward(x_TC, whole, weights, ROTATIONS_SF2)
    wanted = torch.tensor([6, 2, 6])
    found = text.forward(x_TC, some, weights, ROTATIONS_SF2, wanted_R=wanted)
    torch.testing.assert_close(found, expected[wanted])
    assert whole.pool.any() and torch.equal(some.pool, whole.pool)
