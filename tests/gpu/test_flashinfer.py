"""Attention by FlashInfer itself, at the sizes of real models; skipped where it is not installed or cannot compile."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor

from stoop_worker.engine.config import EngineConfig
from stoop_worker.engine.device.attention_choice import flashinfer_lacks
from stoop_worker.engine.engine import Engine
from stoop_worker.engine.request import Chat, Finished, Message, Request, Sampling
from stoop_worker.kernels.paged_attention import PagedLayout, paged_attention, reference
from stoop_worker.kernels.paged_attention.flashinfer import FlashInfer, HeadSizes, PageLists
from stoop_worker.models.families import load_model
from stoop_worker.models.loading.options import LoadOptions
from tests.engine.micro import drain, ending
from tests.gpu.test_attention_kernels import BOUND, DECODES, PAGE, Rows, error, filled, layout_of, queries
from tests.support.tiny_decoder import QWEN3, write_decoder

pytestmark = pytest.mark.skipif(flashinfer_lacks() is not None, reason=str(flashinfer_lacks()))

SIZES = [(32, 8, 64), (32, 8, 128), (32, 32, 64)]
"""Query heads, key heads, head dim: of Llama 3.2 1B, Qwen3-4B, Moondream."""

PREFILLS: dict[str, Rows] = {
    "whole": [(750, 750, 0)] * 3,
    "behind a prefix": [(750, 20, 730), (737, 7, 730), (800, 64, 730)],
    "of every length": [(2048, 129, 0), (64, 64, 0), (65, 1, 0), (300, 300, 0)],
}
DTYPE = torch.bfloat16


@pytest.fixture(params=SIZES, ids=str)
def library(request: pytest.FixtureRequest) -> FlashInfer:
    return FlashInfer(HeadSizes(*request.param, PAGE, DTYPE), torch.device("cuda"), rows=256)


def case(library: FlashInfer, rows: Rows) -> tuple[Tensor, Tensor, PagedLayout]:
    sizes, layout = library.sizes, layout_of(rows)
    pool = filled(layout, DTYPE, sizes.key_heads, sizes.head_dim)
    return queries(layout, DTYPE, sizes.heads, sizes.head_dim), pool, layout


def lists_of(layout: PagedLayout) -> PageLists:
    contexts = torch.tensor(layout.context_lens, dtype=torch.int32)
    counts = -(-contexts // layout.page_size)
    pages = [layout.page_table_BP[row, :count] for row, count in enumerate(counts.tolist())]
    starts = torch.cat((counts.new_zeros(1), counts.cumsum(0))).int()
    return PageLists(starts, torch.cat(pages), ((contexts - 1) % layout.page_size + 1).int())


def send(lists: PageLists, place: PageLists) -> PageLists:
    """Copy lists to their place on the device; return them with the pages there."""
    place.starts_B1.copy_(lists.starts_B1)
    place.lasts_B.copy_(lists.lasts_B)
    place.pages_N[: len(lists.pages_N)] = lists.pages_N
    return PageLists(lists.starts_B1, place.pages_N[: len(lists.pages_N)], lists.lasts_B)


def place_for(sequences: int) -> PageLists:
    starts, lasts, pages = (
        torch.zeros(count, dtype=torch.int32, device="cuda") for count in (sequences + 1, sequences, sequences * 256)
    )
    return PageLists(starts, pages, lasts)


def captured(library: FlashInfer, planned: object, q: Tensor, pool: Tensor) -> tuple[torch.cuda.CUDAGraph, Tensor]:
    scale = library.sizes.head_dim**-0.5
    planned.run(q, pool, scale=scale)  # type: ignore[attr-defined]
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = planned.run(q, pool, scale=scale)  # type: ignore[attr-defined]
    return graph, found


@pytest.mark.parametrize("rows", DECODES.values(), ids=DECODES)
def test_a_captured_decode_follows_its_plans(library: FlashInfer, rows: Rows) -> None:
    q, pool, layout = case(library, rows)
    place = place_for(len(rows))
    planned = library.decode(place)
    graph, found = captured(library, planned, q, pool)
    for shorter in (0, 1, 7):
        lengths = [(max(1, context - shorter), 1, 0) for context, _, _ in rows]
        now = shortened(layout, lengths)
        planned.plan(send(lists_of(now), place))
        q.normal_()
        graph.replay()
        assert error(found, reference.paged_attention(q.double(), pool, now)) < BOUND[DTYPE]


def shortened(layout: PagedLayout, rows: Rows) -> PagedLayout:
    """Return a layout of the same pages with other contexts."""
    made = layout_of(rows, layout.page_size)
    made.page_table_BP.fill_(0)
    width = min(made.page_table_BP.shape[1], layout.page_table_BP.shape[1])
    made.page_table_BP[:, :width] = layout.page_table_BP[:, :width]
    return made


@pytest.mark.parametrize("rows", PREFILLS.values(), ids=PREFILLS)
def test_a_prefill_agrees_with_the_reference(library: FlashInfer, rows: Rows) -> None:
    q, pool, layout = case(library, rows)
    expected = reference.paged_attention(q.double(), pool, layout)
    planned = library.prefill()
    for _ in range(2):
        planned.plan(torch.tensor(layout.cu_seqlens, dtype=torch.int32), lists_of(layout))
        found = planned.run(q, pool, scale=library.sizes.head_dim**-0.5)
        assert error(found, expected) < BOUND[DTYPE]


def test_a_captured_prefill_follows_its_plans(library: FlashInfer) -> None:
    place = place_for(8)
    planned = library.captured_prefill(1024, 8, place.pages_N)
    planned.plan_rows()
    sizes = library.sizes
    q = torch.randn(1024, sizes.heads, sizes.head_dim, device="cuda").to(DTYPE)
    pool = torch.zeros(2, 600, PAGE, sizes.key_heads, sizes.head_dim, dtype=DTYPE, device="cuda")
    graph, found = captured(library, planned, q, pool)
    for rows in ([(750, 750, 0)], [(300, 64, 0), (65, 1, 0), (200, 200, 0)], [(2048, 129, 0)] * 4):
        layout = layout_of(rows)
        pages = int(layout.page_table_BP[layout.page_table_BP < 600].max()) + 1
        pool[:, :pages] = filled(layout, DTYPE, sizes.key_heads, sizes.head_dim).nan_to_num()
        lists = send(lists_of(layout), PageLists(*place_of(place, len(rows))))
        empty = 8 - len(rows)
        starts = torch.cat((lists.starts_B1, lists.starts_B1[-1:].expand(empty)))
        lasts = torch.cat((lists.lasts_B, torch.zeros(empty, dtype=torch.int32)))
        row_starts = torch.tensor([*layout.cu_seqlens, *[layout.cu_seqlens[-1]] * empty], dtype=torch.int32)
        planned.plan(row_starts, PageLists(starts, lists.pages_N, lasts))
        q.normal_()
        graph.replay()
        count = layout.cu_seqlens[-1]
        expected = reference.paged_attention(q[:count].double(), pool, layout)
        assert error(found[:count], expected) < BOUND[DTYPE]


def place_of(place: PageLists, sequences: int) -> tuple[Tensor, Tensor, Tensor]:
    return place.starts_B1[: sequences + 1], place.pages_N, place.lasts_B[:sequences]


def test_each_row_of_a_packed_output_keeps_its_other_columns() -> None:
    library = FlashInfer(HeadSizes(32, 32, 64, PAGE, DTYPE), torch.device("cuda"), rows=256)
    q, pool, layout = case(library, DECODES["short"])
    place = place_for(len(q))
    planned = library.decode(place)
    planned.plan(send(lists_of(layout), place))
    out = torch.full((len(q), 32 * 64 + 8), torch.nan, dtype=DTYPE, device="cuda")
    planned.run(q, pool, scale=64**-0.5, out_TM=out)
    assert error(out[:, :-8].view(q.shape), paged_attention(q, pool, layout)) < BOUND[DTYPE]
    assert out[:, -8:].isnan().all()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    yield write_decoder(tmp_path_factory.mktemp("qwen3"), QWEN3)


def test_a_warm_engine_answers_chats_of_any_length(folder: Path) -> None:
    engines = []
    for attention in ("flashinfer", "triton"):
        model = load_model(folder, LoadOptions(torch.device("cuda"), DTYPE))
        config = EngineConfig(max_context=2048, max_batch=16, token_budget=512, attention=attention)
        engine = Engine(model, config)  # type: ignore[arg-type]
        engine.warm_up()
        assert engine.attention.decode == attention
        engines.append(engine)
    asked = [
        Request(
            str(n),
            Chat((Message("user", ("the cat sat on the mat " * (1 + 7 * n),)),)),
            (),
            Sampling(temperature=0.0, max_tokens=20, top_k=5 if n == 3 else 0),
        )
        for n in range(20)
    ]
    planned, own = (drain(engine, asked) for engine in engines)
    texts = [
        [end.text for request in asked if isinstance(end := ending(received, request.id), Finished)]
        for received in (planned, own)
    ]
    assert [len(each) for each in texts] == [20, 20]
    # both round, so a text may turn to another word somewhere
    alike = sum(one[:4] == other[:4] for one, other in zip(*texts, strict=True))
    assert alike >= 10
