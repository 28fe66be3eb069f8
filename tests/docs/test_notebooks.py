"""The notebooks of the documentation run from top to bottom, are committed without outputs, and are linked."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pytest

NOTEBOOKS = sorted((Path(__file__).parents[2] / "docs" / "notebooks").glob("*.ipynb"))


def cells(path: Path, kind: str) -> list[dict[str, Any]]:
    return [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == kind]


@pytest.mark.usefixtures("short_trainings")
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "__main__"}
    for number, cell in enumerate(cells(path, "code"), 1):
        assert not cell["outputs"]
        assert cell["execution_count"] is None
        exec(compile(ast.parse("".join(cell["source"])), f"{path.name}, cell {number}", "exec"), names)


def test_every_notebook_is_linked_from_the_page_of_the_notebooks() -> None:
    page = (Path(__file__).parents[2] / "docs" / "notebooks.md").read_text()
    assert len(NOTEBOOKS) == 3
    assert all(f"notebooks/{path.name}" in page for path in NOTEBOOKS)
