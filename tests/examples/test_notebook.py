import ast
import asyncio
import inspect
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from stoop.demo.pictures import Picture, draw_pictures
from tests.examples.conftest import EXAMPLES, Deployment

pytest.importorskip("pycocotools")


async def run_cells(notebook: Path) -> list[Any]:
    """Run the cells in order, as Jupyter does: in one namespace, with `await`; return each cell's last value."""
    names: dict[str, Any] = {"__name__": "__main__"}
    values = []
    for number, cell in enumerate(json.loads(notebook.read_text(encoding="utf-8"))["cells"]):
        if cell["cell_type"] != "code":
            continue
        tree = ast.parse("".join(cell["source"]))
        last = tree.body[-1]
        if isinstance(last, ast.Expr):
            tree.body[-1] = ast.fix_missing_locations(ast.Assign([ast.Name("_last", ast.Store())], last.value))
        code = compile(tree, f"cell {number}", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        running = eval(code, names)
        if inspect.isawaitable(running):
            await running
        values.append(names.pop("_last", None))
    return values


def test_the_notebook_runs_from_images_to_coco(
    demo_deployment: tuple[Deployment, Picture, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in demo_deployment[0].variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PATH", os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    monkeypatch.chdir(tmp_path)
    values = asyncio.run(run_cells(EXAMPLES / "notebook" / "boxes.ipynb"))
    assert values[-1] is True, "the queue finds as many boxes as the engine in the process"
    coco = json.loads((tmp_path / "coco-local" / "instances.json").read_text())
    truth = sum(picture.count("red circle") for picture in draw_pictures(3, seed=1))
    assert len(coco["images"]) == 3 and abs(len(coco["annotations"]) - truth) <= 1
