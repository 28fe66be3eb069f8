"""The picture of the folders and their imports in docs/contributing.md: current, and true to the layers."""

from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType

import pytest

pytest.importorskip("grimp")
ROOT = Path(__file__).parents[2]


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module jobs/imports_picture.py."""
    monkeypatch.syspath_prepend(ROOT / "jobs")
    import imports_picture

    return imports_picture


def test_the_picture_is_that_of_the_code(job: ModuleType) -> None:
    stated, counts = job.layers(), job.imports_between_folders()
    names = {name for layer in stated for name in layer}
    assert {name for pair in counts for name in pair} <= names
    assert job.PICTURE.read_text(encoding="utf-8") == job.drawn(stated, counts), (
        "the imports have changed: run python jobs/imports_picture.py"
    )


def test_every_import_of_the_picture_points_down_the_layers(job: ModuleType) -> None:
    stated = job.layers()
    layer_of = {name: place for place, layer in enumerate(stated) for name in layer}
    found = re.findall(r"<title>(\w+) imports (\w+)</title>", job.PICTURE.read_text(encoding="utf-8"))
    assert len(found) > len(layer_of)
    assert all(layer_of[name] < layer_of[imported] for name, imported in found)


def test_imports_are_counted_from_folder_to_folder(job: ModuleType) -> None:
    picture = job.drawn([["top"], ["left", "right"], ["base"]], {("top", "left"): 1, ("left", "base"): 20})
    assert re.findall(r"<title>(\w+ imports \w+)</title>", picture) == ["top imports left", "left imports base"]
    assert picture.count(job.STEPS[0][1]) == picture.count(job.STEPS[2][1]) == 2  # a cell, and the legend
