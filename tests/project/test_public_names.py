"""The public names of every module are those of its `__all__`."""

import pytest

from tests.project.modules import ROOT, Module, modules

MODULES = modules()
FRONTS = [module for module in MODULES if module.path.endswith("__init__.py") and not module.defined]
PLAIN = [module for module in MODULES if module not in FRONTS]


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.path)
def test_no_name_is_listed_twice(module: Module) -> None:
    assert sorted(set(module.listed or [])) == sorted(module.listed or [])


@pytest.mark.parametrize("module", PLAIN, ids=lambda module: module.path)
def test_a_module_lists_its_public_names(module: Module) -> None:
    assert module.listed is not None, "give it an __all__"
    assert module.defined - set(module.listed) == set(), "what is not listed wants a leading underscore"
    assert set(module.listed) - module.defined - module.imported == set(), "what is listed is not there"


@pytest.mark.parametrize("module", FRONTS, ids=lambda module: module.path)
def test_a_package_lists_its_imported_names(module: Module) -> None:
    assert set(module.listed or []) == module.imported


@pytest.mark.parametrize("package", ["schemas/stoop_schemas", "producer/stoop", "worker/stoop_worker"])
def test_a_package_is_marked_as_typed(package: str) -> None:
    assert (ROOT / package / "py.typed").is_file()
