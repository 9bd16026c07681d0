"""A tiny Moondream 3 against values computed from the published formulas, and against plain code of them."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from deploy.demo_model import dense_text as text
from stoop_worker.models.moondream import region
from stoop_worker.models.moondream.config import ModelConfig
from stoop_worker.models.moondream.config_parts import TauConfig
from stoop_worker.models.moondream.weights import MoE, Weights
from tests.parity.plain_moondream3 import PlainMoondream3
from tests.support.tiny_model import formula_weights, tiny_moondream3_config

TOKENS = [0, 1, 15, 2, 40, 41, 3]
CONFIG = tiny_moondream3_config()
TENSORS = formula_weights(CONFIG)
WEIGHTS = Weights.of(TENSORS, CONFIG)
PLAIN = PlainMoondream3(TENSORS, layers=3, heads=2, first_mixed=1, chosen=2)


def agrees(found: Tensor, first: list[float], *, norm: float | None = None, close: float = 1e-4) -> None:
    np.testing.assert_allclose(found.flatten()[: len(first)].tolist(), first, rtol=close, atol=close)
    if norm is not None:
        assert found.double().norm().item() == pytest.approx(norm, rel=close)


def run(
    x_TC: Tensor, weights: Weights = WEIGHTS, config: ModelConfig = CONFIG, prefix: int = 0, layers: int = 3
) -> Tensor:
    part = replace(weights.text, blocks=weights.text.blocks[:layers])
    return text.forward(x_TC, torch.arange(len(x_TC)), part, config.text, text.dense_attend(prefix))


def embedded(ids: list[int]) -> Tensor:
    return text.embed(torch.tensor(ids), WEIGHTS.text)


def test_the_temperature_of_the_first_layer() -> None:
    block = WEIGHTS.text.blocks[0]
    assert block.attn.tau is not None
    agrees(block.attn.tau.alpha, [-0.9535354, 0.9890329], close=1e-6)
    normed = PLAIN.norm(embedded(TOKENS), "text.blocks.0.ln")
    qkv = PLAIN.linear(normed, "text.blocks.0.attn.qkv")
    of_q, of_v = PLAIN.temperatures(qkv, "text.blocks.0.attn.tau")
    position = torch.tensor([0.7105055, 1.2975564])
    agrees(of_q[3] - position, [-0.6149065, -0.5939943], close=1e-6)
    agrees(of_v[3] - position, [-0.3844113, -0.5195781], close=1e-6)


def test_the_experts_of_the_second_layer() -> None:
    moe = WEIGHTS.text.blocks[1].mlp
    assert isinstance(moe, MoE)
    row = PLAIN.norm(run(embedded(TOKENS), layers=1)[3], "text.blocks.1.ln")
    agrees(row @ moe.router.weight.T + moe.router.bias, [0.688712, 0.396880, -0.581662, 1.160437], close=1e-5)
    (first, second) = PLAIN.route(row, "text.blocks.1.mlp")
    assert (first[0], second[0]) == (3, 0)
    assert (first[1], second[1]) == pytest.approx((0.615792, 0.384208), abs=1e-5)


def test_last_hidden_state_and_logits() -> None:
    hidden = run(embedded(TOKENS))[-1:]
    agrees(hidden, [-0.433910, 1.080495, -0.711708, -2.834046, -0.843220, -0.507335], norm=20.02182)
    logits = text.logits(hidden, WEIGHTS.text)
    agrees(logits, [2.249460, -1.760721, 0.362843, -0.110107, -0.866472, 0.799256], norm=7.39713)
    assert logits.argmax() == 0


def test_coordinates_and_sizes_are_read_from_the_raw_hidden_state() -> None:
    hidden = run(embedded(TOKENS))[-1:]
    assert region.coordinate_logits(hidden, WEIGHTS.region).argmax() == 942
    assert region.size_logits(hidden, WEIGHTS.region).argmax(-1).tolist() == [[267, 539]]
    assert (PLAIN.coordinate_bin(hidden[0]), PLAIN.size_bins(hidden[0])) == (942, [267, 539])


@pytest.mark.parametrize("prefix", [0, 5])
def test_every_row_is_that_of_the_plain_formulas(prefix: int) -> None:
    x = embedded([0, 1, 15, 2, 40, 41, 3, 22, 37, 60, 12])
    torch.testing.assert_close(run(x, prefix=prefix), PLAIN.hidden(x, prefix), rtol=1e-4, atol=1e-5)


def test_tanh_in_the_temperature_moves_the_logits_a_little() -> None:
    config = replace(CONFIG, text=replace(CONFIG.text, tau=TauConfig(gelu="tanh")))
    weights = Weights.of(TENSORS, config)
    x = embedded(TOKENS)
    hidden = run(x, weights, config)[-1:]
    moved = (text.logits(hidden, weights.text) - text.logits(run(x)[-1:], WEIGHTS.text)).abs().max()
    assert moved.item() == pytest.approx(2.8e-4, rel=0.05)
    torch.testing.assert_close(hidden, replace(PLAIN, tau_gelu="tanh").hidden(x)[-1:], rtol=1e-4, atol=1e-5)


def test_rounded_positions_are_a_switch() -> None:
    config = replace(CONFIG, text=replace(CONFIG.text, tau=TauConfig(position_dtype="bfloat16")))
    x = embedded(TOKENS)
    found = run(x, Weights.of(TENSORS, config), config)
    torch.testing.assert_close(found, replace(PLAIN, rounded_positions=True).hidden(x), rtol=1e-4, atol=1e-5)
    assert not torch.allclose(found, run(x), rtol=1e-4, atol=1e-5)


def test_the_region_model_can_read_behind_the_last_norm() -> None:
    config = replace(CONFIG, region=replace(CONFIG.region, norm_input="post_ln"))
    hidden = run(embedded(TOKENS))[-1:]
    found = region.coordinate_logits(hidden, Weights.of(TENSORS, config).region)
    expected = PLAIN.linear(PLAIN.norm(PLAIN.norm(hidden, "text.post_ln"), "region.ln"), "region.coord_decoder")
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    assert not torch.allclose(found, region.coordinate_logits(hidden, WEIGHTS.region), atol=1e-3)
