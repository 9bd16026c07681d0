"""A folder's map, the list of files in the docstring of its `__init__`, names what is there."""

import ast
import re
from pathlib import Path

import pytest

from tests.project.modules import ROOT, Module, modules

LISTED = re.compile(r"^ *([a-z_0-9]+(?:\.py|\.lua|/))  ", flags=re.MULTILINE)


def mapped(module: Module) -> set[str]:
    return set(LISTED.findall(ast.get_docstring(module.tree) or ""))


FOLDERS = [module for module in modules() if module.path.endswith("__init__.py") and mapped(module)]


@pytest.mark.parametrize("module", FOLDERS, ids=lambda module: str(Path(module.path).parent))
def test_a_map_names_exactly_the_files_of_its_folder(module: Module) -> None:
    folder, named = (ROOT / module.path).parent, mapped(module)
    mentioned = set(re.findall(r"\w+(?:\.py|\.lua|/)", ast.get_docstring(module.tree) or ""))
    scripts = {path.name for path in folder.glob("scripts/*.lua")}
    files = {path.name for path in folder.glob("*.py")}
    folders = {f"{path.name}/" for path in folder.iterdir() if path.is_dir()}
    packages = {name for name in folders if any((folder / name).glob("**/*.py"))}
    wanted = files | packages | (scripts if named & scripts else set())
    assert wanted - mentioned - {"__init__.py", "__main__.py"} == set(), "not in the map"
    assert named - files - folders - scripts == set(), "in the map, but not in the folder"
