import pytest
import torch

from deploy.demo_model import dense_text as text
from tests.support.one_sequence import OneSequence
from tests.support.tiny_model import tiny_moondream

MODEL = tiny_moondream(torch.float64)
WEIGHTS, CONFIG = MODEL.weights.text, MODEL.config.text


def run(x: torch.Tensor, prefix_len: int) -> torch.Tensor:
    return text.forward(x, torch.arange(x.shape[-2]), WEIGHTS, CONFIG, text.dense_attend(prefix_len))


def embeddings(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, CONFIG.dim, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def test_a_batch_equals_its_rows_run_alone() -> None:
    x = embeddings(3, 12)
    batch = run(x, 5)
    for row in range(3):
        torch.testing.assert_close(batch[row], run(x[row], 5))


@pytest.mark.parametrize("prefix_len", [0, 8])
@pytest.mark.parametrize("page_size", [1, 5, 16])
def test_steps_with_a_cache_equal_one_call_without(prefix_len: int, page_size: int) -> None:
    x = embeddings(14)
    sequence = OneSequence(MODEL, prefix_len=prefix_len, page_size=page_size)
    parts = [x[:8], x[8:11], x[11:12], x[12:13], x[13:]]
    torch.testing.assert_close(torch.cat([sequence.step(part) for part in parts]), run(x, prefix_len))


def test_the_prefix_sees_itself_and_nothing_after_it() -> None:
    x = embeddings(10)
    later, last_of_prefix = x.clone(), x.clone()
    later[6:] *= -1
    last_of_prefix[5] *= -1
    hidden = run(x, 6)
    assert torch.equal(run(later, 6)[:6], hidden[:6])
    assert not torch.allclose(run(last_of_prefix, 6)[0], hidden[0])
    assert torch.equal(run(last_of_prefix, 0)[:5], run(x, 0)[:5])


def test_attention_and_mlp_share_one_norm_and_add_to_the_stream() -> None:
    x = embeddings(1)
    block = WEIGHTS.blocks[0]
    normed = torch.nn.functional.layer_norm(x, (CONFIG.dim,), block.ln.weight, block.ln.bias)
    value = (normed @ block.attn.qkv.weight.T + block.attn.qkv.bias)[:, 2 * CONFIG.dim :]  # a lone token sees itself
    attended = value @ block.attn.proj.weight.T + block.attn.proj.bias
    inner = torch.nn.functional.gelu(normed @ block.mlp.fc1.weight.T + block.mlp.fc1.bias, approximate="tanh")
    seen = []
    first_only = text.TextWeights(WEIGHTS.wte, WEIGHTS.blocks[:1], WEIGHTS.post_ln, WEIGHTS.lm_head)
    found = text.forward(x, torch.tensor([9]), first_only, CONFIG, lambda layer, q, k, v: seen.append(layer) or v)
    torch.testing.assert_close(found, x + attended + inner @ block.mlp.fc2.weight.T + block.mlp.fc2.bias)
    assert seen == [0]


def test_bfloat16_stays_near_float64() -> None:
    ids = torch.tensor(MODEL.tokenizer.tokenize("How many red circles are there?"))

    def logits(model: object) -> torch.Tensor:
        weights = model.weights.text  # type: ignore[attr-defined]
        x = text.embed(ids, weights)
        return text.logits(text.forward(x, torch.arange(len(ids)), weights, CONFIG, text.dense_attend(0)), weights)

    exact, rough = logits(MODEL), logits(tiny_moondream(torch.bfloat16))
    assert rough.dtype == torch.bfloat16
    assert (rough.double() - exact).norm() / exact.norm() < 0.03


def test_every_weight_learns() -> None:
    model = tiny_moondream()
    weights = model.weights.text
    leaves = [weights.wte, weights.lm_head.weight, weights.post_ln.bias, weights.blocks[0].attn.qkv.weight]
    ids = torch.arange(30, 42).view(2, 6)
    try:
        for leaf in leaves:
            leaf.requires_grad_()
        hidden = text.forward(
            text.embed(ids, weights), torch.arange(6), weights, model.config.text, text.dense_attend(3)
        )
        grads = torch.autograd.grad(text.logits(hidden, weights).logsumexp(-1).sum(), leaves)
    finally:
        for leaf in leaves:
            leaf.requires_grad_(False)
    assert all(grad.abs().sum() > 0 for grad in grads)
