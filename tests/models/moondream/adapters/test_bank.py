"""Adapters against models with the same corrections merged into their weights, alone and mixed in a batch."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from stoop_worker.engine.config import EngineConfig
from stoop_worker.engine.engine import Engine
from stoop_worker.engine.request import Caption, Detect, Query, Refusal, Refused, Request, Sampling, Task
from stoop_worker.errors import ConfigError
from stoop_worker.models.moondream.adapters import AdapterBank, read_adapters
from stoop_worker.models.moondream.config import ModelConfig
from stoop_worker.models.moondream.family import MoondreamFamily
from stoop_worker.models.moondream.lora import Adapter, BlockAdapters, Corrections
from stoop_worker.models.moondream.model import Moondream
from stoop_worker.models.moondream.shapes import tensor_shapes
from tests.engine import naive
from tests.engine.micro import MICRO, MICRO3, crops_of, drain, ending, media_of, micro_tensors, micro_tokenizer
from tests.engine.test_engine import assert_equal

SAMPLING = Sampling(temperature=0.0, max_tokens=6, max_objects=2, seed=0)
Deltas = dict[str, tuple[Tensor, Tensor]]


def drawn(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) / shape[-1] ** 0.5


def variant(rank: int, seed: int) -> Deltas:
    """Return A and B of a Moondream 2 variant, by the weight that they correct."""
    shapes = tensor_shapes(MICRO)
    names = [name for name in shapes if name.startswith("text.blocks") and name.endswith("weight")]
    layers = [name for name in names if any(part in name for part in ("qkv", "fc1", "fc2"))]
    return {
        name: (drawn(seed + n, rank, shapes[name][1]), 2 * drawn(seed - n, shapes[name][0], rank))
        for n, name in enumerate(layers)
    }


def tuned(rank: int, seed: int) -> Deltas:
    """Return A and B of a Moondream 3 fine-tune: its MLPs and experts alone."""
    shapes = {name: shape for name, shape in tensor_shapes(MICRO3).items() if ".mlp.fc" in name and "weight" in name}
    text = {name: shape for name, shape in shapes.items() if name.startswith("text")}
    return {
        name: (drawn(seed + n, *shape[:-2], rank, shape[-1]), 2 * drawn(seed - n, *shape[:-1], rank))
        for n, (name, shape) in enumerate(text.items())
    }


def in_variant_names(deltas: Deltas) -> dict[str, Tensor]:
    """Spell the names as released variants do."""
    found = {}
    for name, (a, b) in deltas.items():
        stem = name.removesuffix(".weight").replace("text.blocks", "text_model.transformer.h")
        stem = stem.replace(".attn.qkv", ".mixer.Wqkv") + ".parametrizations.weight.0"
        found |= {f"{stem}.A": a.contiguous(), f"{stem}.B": b.contiguous()}
    return found


def in_tuned_names(deltas: Deltas) -> dict[str, Tensor]:
    found = {}
    for name, (a, b) in deltas.items():
        layer, direction = int(name.split(".")[2]), "up" if "fc1" in name else "down"
        stem = f"moe.{layer - 1}.{direction}" if a.ndim == 3 else f"dense.{layer}.{direction}"
        found |= {f"{stem}_a": a.contiguous(), f"{stem}_b": b.contiguous()}
    return found


def merged(config: ModelConfig, deltas: Deltas) -> Moondream:
    tensors = micro_tensors(config)
    for name, (a, b) in deltas.items():
        tensors[name] = tensors[name] + b @ a
    return Moondream.of(config, tensors, micro_tokenizer(), name="merged")


CASES: dict[str, tuple[ModelConfig, dict[str, Deltas], Callable[[Deltas], dict[str, Tensor]]]] = {
    "moondream2": (MICRO, {"cats": variant(3, 10), "dogs": variant(1, 50)}, in_variant_names),
    "moondream3": (MICRO3, {"cats": tuned(2, 10), "dogs": tuned(1, 50)}, in_tuned_names),
}
TASKS: list[Task] = [Query("What colour?", reasoning=False), Caption("short"), Detect("circle")]


@pytest.fixture(scope="module", params=CASES)
def case(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@cache
def expected(case: str, adapter: str | None, task: Task, image: int | None) -> naive.Answer:
    config, adapters, _ = CASES[case]
    model = merged(config, adapters[adapter] if adapter else {})
    return naive.answer(model, Request("naive", task, media_of(None if image is None else crops_of(image)), SAMPLING))


@pytest.fixture(scope="module")
def bank(case: str, tmp_path_factory: pytest.TempPathFactory) -> AdapterBank:
    config, adapters, spell = CASES[case]
    folder = tmp_path_factory.mktemp("adapters")
    save_file(spell(adapters["cats"]), folder / "cats.safetensors")
    torch.save({"lora_state_dict": spell(adapters["dogs"])}, folder / "dogs.pt")
    (folder / "torn.safetensors").write_bytes(b"nothing of the kind")
    save_file({"text.blocks.0.mlp.fc1.A": torch.zeros(2, 7)}, folder / "half.safetensors")
    return read_adapters(folder, config.text, device=torch.device("cpu"), dtype=torch.float64)


def engine_with(case: str, bank: AdapterBank, *, fused: bool = False, **changes: object) -> Engine:
    config = EngineConfig(page_size=4, max_batch=4, token_budget=64)
    family = MoondreamFamily(merged(CASES[case][0], {}), fused=fused, adapters=bank)
    return Engine(family, replace(config, **changes))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "changes", [{}, {"token_budget": 20, "lookahead": True}, {"prefix_cache": False}, {"fused": True}], ids=str
)
def test_in_a_mixed_batch_each_request_is_answered_by_its_own_adapter(
    case: str, bank: AdapterBank, changes: dict[str, Any]
) -> None:
    engine = engine_with(case, bank, **changes)
    kinds = [(adapter, task, 0) for task in TASKS for adapter in (None, "cats", "dogs")]
    texts = [(adapter, TASKS[0], None) for adapter in ("cats", None, "dogs")]
    for _ in range(2):  # the second time from the cache
        asked = {str(number): kind for number, kind in enumerate([*kinds, *texts])}
        requests = [
            Request(name, task, media_of(None if image is None else crops_of(image)), SAMPLING, adapter=adapter)
            for name, (adapter, task, image) in asked.items()
        ]
        outputs = drain(engine, requests)
        for name, (adapter, task, image) in asked.items():
            assert_equal(outputs[name], expected(case, adapter, task, image))


def test_the_adapters_matter(case: str) -> None:
    answers = [[expected(case, adapter, task, 0) for task in TASKS] for adapter in (None, "cats", "dogs")]
    assert answers[0] != answers[1] != answers[2] != answers[0]


def test_an_image_is_cached_for_each_adapter_separately(case: str, bank: AdapterBank) -> None:
    engine = engine_with(case, bank)
    for adapter in ("cats", "dogs", None, "cats"):
        drain(engine, [Request("a", Caption("short"), media_of(crops_of(0)), SAMPLING, adapter=adapter)])
    assert engine.stats.totals.images_encoded == 3


@pytest.mark.parametrize(
    ("adapter", "reason"),
    [
        ("torn", "the adapter 'torn' cannot be used: "),
        ("half", "the adapter 'half' cannot be used: layer 0, fc1: A or B is missing"),
        ("birds", "there is no adapter 'birds' here: check its id"),
    ],
)
def test_an_adapter_that_cannot_be_used_fails_its_job_alone(
    case: str, bank: AdapterBank, adapter: str, reason: str
) -> None:
    image = media_of(crops_of(0))
    bad = Request("bad", Caption("short"), image, SAMPLING, adapter=adapter)
    good = Request("good", Caption("short"), image, SAMPLING, adapter="cats")
    outputs = drain(engine_with(case, bank), [bad, good])
    last = ending(outputs, "bad")
    assert isinstance(last, Refused) and last.refusal is Refusal.INVALID_ARGUMENT and last.message.startswith(reason)
    assert_equal(outputs["good"], expected(case, "cats", Caption("short"), 0))


def test_the_scale_of_experts_multiplies_their_corrections_alone(tmp_path: Path) -> None:
    deltas, task = tuned(2, 10), TASKS[0]
    save_file(in_tuned_names(deltas), tmp_path / "cats.safetensors")
    assert MICRO3.text.moe is not None
    text = replace(MICRO3.text, moe=replace(MICRO3.text.moe, adapter_scale=0.25))
    bank = read_adapters(tmp_path, text, device=torch.device("cpu"), dtype=torch.float64)
    outputs = drain(engine_with("moondream3", bank), [Request("a", task, (), SAMPLING, adapter="cats")])
    scaled = {name: (a, b / 4 if b.ndim == 3 else b) for name, (a, b) in deltas.items()}
    answers = [naive.answer(merged(MICRO3, each), Request("a", task, (), SAMPLING)) for each in (scaled, deltas)]
    assert answers[0] != answers[1]
    assert_equal(outputs["a"], answers[0])


def test_without_adapters_one_is_refused(case: str) -> None:
    outputs = drain(engine_with(case, AdapterBank()), [Request("a", Query("What?"), (), SAMPLING, adapter="cats")])
    last = ending(outputs, "a")
    assert isinstance(last, Refused) and "start the worker with --adapters" in last.message


def test_the_correction_of_proj_reads_the_block_s_norm() -> None:
    a, b = drawn(1, 2, 32), drawn(2, 32, 2)
    rows, heads = drawn(3, 5, 32), drawn(4, 5, 32)
    a_all, b_all = (torch.cat((torch.zeros(2, 32), each)).double() for each in (a, b.T))
    block = BlockAdapters({"proj": Adapter(a_all, b_all)})
    numbers = torch.tensor([0, 1, 1, 0, 1])
    corrections = Corrections.of([block], numbers, count=2, rank=2, like=rows)
    found = corrections.correct(0, "proj", heads, rows)
    torch.testing.assert_close(found, heads + (numbers == 1)[:, None] * (rows @ a.T @ b.T))


@pytest.mark.parametrize(
    ("name", "shape", "complaint"),
    [
        ("text.blocks.9.mlp.fc1.A", (2, 32), "no layer 9, fc1"),
        ("text.blocks.0.mlp.fc1.A", (2, 31), "do not fit the model"),
        ("vision.blocks.0.mlp.fc1.A", (2, 32), "no place for its tensor vision"),
        ("moe.0.up_a", (4, 2, 32), "no place for its tensor moe.0.up_a"),
    ],
)
def test_a_tensor_that_does_not_fit_is_named(name: str, shape: tuple[int, ...], complaint: str, tmp_path: Path) -> None:
    other = name[:-1] + {"A": "B", "a": "b"}[name[-1]]
    save_file({name: torch.zeros(shape), other: torch.zeros(64, 2)}, tmp_path / "odd.safetensors")
    bank = read_adapters(tmp_path, MICRO.text, device=torch.device("cpu"), dtype=torch.float32)
    assert complaint in bank.broken["odd"] and not bank


def test_values_that_are_no_numbers_do_not_reach_other_answers(case: str, tmp_path: Path) -> None:
    config, adapters, spell = CASES[case]
    tensors = spell(adapters["cats"])
    save_file(tensors, tmp_path / "cats.safetensors")
    for name, wrong in (("burst", float("inf")), ("lost", float("nan"))):
        last = sorted(tensors)[-1]
        changed = {**tensors, last: tensors[last].clone()}
        changed[last].view(-1)[-1] = wrong
        save_file(changed, tmp_path / f"{name}.safetensors")
    bank = read_adapters(tmp_path, config.text, device=torch.device("cpu"), dtype=torch.float64)
    assert sorted(bank.loaded) == ["cats"] and sorted(bank.broken) == ["burst", "lost"]
    assert all("infinite or not a number" in reason for reason in bank.broken.values())


def test_the_reason_for_a_file_with_code_is_one_sentence(tmp_path: Path) -> None:
    torch.save({"lora_state_dict": print}, tmp_path / "code.pt")
    bank = read_adapters(tmp_path, MICRO.text, device=torch.device("cpu"), dtype=torch.float32)
    assert bank.broken["code"] == "it holds more than tensors, or is damaged"


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no such folder"):
        read_adapters(tmp_path / "none", MICRO.text, device=torch.device("cpu"), dtype=torch.float32)


def test_adapters_and_fp8_products_exclude_each_other(case: str, bank: AdapterBank) -> None:
    with pytest.raises(ConfigError, match="--fp8-linears"):
        MoondreamFamily(merged(CASES[case][0], {}), adapters=bank, fp8_linears=True)
