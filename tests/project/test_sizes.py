"""Files and functions are small enough to read at once."""

from statistics import median

import pytest

from tests.project.modules import Module, modules
from tests.project.sizes import report

MODULES = modules()
FILE_LIMIT, KERNEL_LIMIT, PARAMETER_LIMIT = 300, 400, 6


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.path)
def test_a_file_fits_in_mind(module: Module) -> None:
    assert module.lines <= (KERNEL_LIMIT if module.path.startswith("worker/stoop_worker/kernels/") else FILE_LIMIT)


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.path)
def test_no_function_takes_parameters_by_the_dozen(module: Module) -> None:
    assert {f.name: f.parameters for f in module.functions if f.parameters > PARAMETER_LIMIT} == {}


def test_half_of_all_functions_have_ten_lines_or_fewer() -> None:
    assert median(function.lines for module in MODULES for function in module.functions) <= 10


def test_the_report_names_the_largest() -> None:
    largest = max(MODULES, key=lambda module: module.lines)
    assert f"{largest.lines} {largest.path}" in report(MODULES)
