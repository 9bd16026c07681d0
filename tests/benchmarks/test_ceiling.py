"""Shares of a device's ceiling, as the kernels' table prints them and as PERFORMANCE.md has them."""

import re

import pytest

from benchmarks.kernels.ceiling import H200, ceiling_of
from tests.project.modules import ROOT

pytest.importorskip("triton")

from benchmarks.kernels.moe import CHOSEN, EXPERTS, work
from benchmarks.kernels.row import Row, print_table


def test_memory_or_products_bound_a_kernel() -> None:
    assert H200.least_us(bytes=4.28e6) == pytest.approx(1.0)
    assert H200.least_us(bytes=4.28e6, operations=2 * 643e6) == pytest.approx(2.0)
    assert H200.least_us(bytes=0, operations=1050e6, fp8=True) == pytest.approx(1.0)
    assert ceiling_of("NVIDIA H200") is H200 and ceiling_of("NVIDIA L4") is None


def test_the_page_of_figures_has_the_computed_shares() -> None:
    page = (ROOT / "PERFORMANCE.md").read_text(encoding="utf-8")
    table = page[page.index("| experts' products,") :]
    numbers = re.findall(r"^\| (bfloat16, µs |least[^|]*|share[^|]*|experts[^|]*)\|(.*)\|$", table[:2000], re.MULTILINE)
    rows = {name.split(",")[0].strip(): [cell.strip(" %") for cell in cells.split("|")] for name, cells in numbers}
    tokens = [int(cell.removesuffix(" tokens").replace(",", "")) for cell in rows["experts' products"]]
    assert len(tokens) == 8
    for at, count in enumerate(tokens):
        evenly = EXPERTS * (1 - (1 - CHOSEN / EXPERTS) ** count)
        least = H200.least_us(**work(count, evenly, float8=False, fp8=False))
        assert float(rows["least time at the ceilings"][at].replace(",", "")) == pytest.approx(least, rel=0.01)
        assert float(rows["share of the ceiling"][at]) == pytest.approx(
            100 * least / float(rows["bfloat16"][at].replace(",", "")), abs=0.6
        )


def test_the_table_shows_the_share_where_the_ceiling_is_known(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(
        [Row("experts", "1 tokens", 44.0, 242.0, "torch", "2.29 TB/s", 23.5), Row("other", "", 1.0, None, "", "")]
    )
    head, known, unknown = capsys.readouterr().out.splitlines()
    assert head.split()[-2:] == ["ceiling", "library"]
    assert known.split()[-2:] == ["53%", "torch"]
    assert "%" not in unknown
