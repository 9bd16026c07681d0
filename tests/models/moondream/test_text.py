import pytest
import torch

from tests.support.tiny_model import tiny_moondream
from worker.kernels.paged_attention import PagedLayout
from worker.kernels.rotate_write import rotation_table
from worker.model import paged_text
from worker.model.fp8 import in_fp8
from worker.model.weights import TextWeights

MODEL = tiny_moondream()
CONFIG = MODEL.config.text
COUNT, PAGE = 7, 4


def pages() -> paged_text.Pages:
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
    return paged_text.Pages(
        positions_T=torch.arange(COUNT),
        slots_T=torch.arange(COUNT),
        layout=layout,
        pool=torch.zeros(CONFIG.n_layers, 2, used, PAGE, CONFIG.n_heads, CONFIG.head_dim),
        rotations_SF2=rotation_table(
            CONFIG.max_context, CONFIG.rotary_dim, CONFIG.rope_theta, torch.device("cpu"), dtype=torch.float32
        ),
        mark=lambda: None,
    )


@pytest.mark.parametrize("weights", [MODEL.weights.text, in_fp8(MODEL.weights).text], ids=["plain", "fp8"])
def test_wanted_rows_are_those_of_all_and_all_are_kept(weights: TextWeights) -> None:
    x_TC = torch.randn(COUNT, CONFIG.dim, generator=torch.Generator().manual_seed(0))
    whole, some = pages(), pages()
    expected = paged_text.forward(x_TC, whole, weights, CONFIG.n_heads)
    wanted = torch.tensor([6, 2, 6])
    found = paged_text.forward(x_TC, some, weights, CONFIG.n_heads, wanted_R=wanted)
    torch.testing.assert_close(found, expected[wanted])
    assert whole.pool.any() and torch.equal(some.pool, whole.pool)
