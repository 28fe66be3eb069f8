from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

Run = Callable[..., Result]


@pytest.mark.slow
def test_the_demo_goes_the_whole_way_also_where_an_earlier_one_left_its_files(mllkm: Run, tmp_path: Path) -> None:
    folder = tmp_path / "demo-run"
    (folder / "run").mkdir(parents=True)
    for name in ("digits.npz", "digits.h5", "predictions.h5", "run/model.mllkm", "run/checkpoint.npz"):
        (folder / name).write_text("of an earlier demo")
    result = mllkm("demo", "--out", folder)
    assert result.exit_code == 0, result.output
    commands = re.findall(r"^   \$ mllkm (\w+)", result.stdout, re.MULTILINE)
    assert commands == ["convert", "plan", "train", "evaluate", "predict", "inspect"]
    accuracy = re.search(r"accuracy (\S+) %", result.stdout)
    assert accuracy is not None
    assert float(accuracy[1]) > 95
    assert (folder / "run" / "model.mllkm").stat().st_size > 1000


def test_the_demo_keeps_out_of_a_folder_that_is_not_its_own(mllkm: Run, tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("x")
    result = mllkm("demo", "--out", tmp_path)
    assert result.exit_code == 2
    assert "--out" in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_the_demo_names_a_folder_that_cannot_be_made(mllkm: Run, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    result = mllkm("demo", "--out", tmp_path / "file" / "demo")
    assert result.exit_code == 7
    assert "file/demo" in result.stderr
