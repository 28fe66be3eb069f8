"""What all exports share: files appear whole or not at all, and nothing is replaced without being told."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from click.testing import CliRunner, Result

from mllkm_scale.cli import cli
from mllkm_scale.errors import ParameterError, ScratchError
from mllkm_scale.export import export_c, export_npz, export_onnx
from mllkm_scale.export.forms import find_tables

Fixture = Any
EXPORTS = {"m.onnx": export_onnx, "m.h": export_c, "m.npz": export_npz}
PAGE = Path(__file__).parents[2] / "docs" / "export.md"


@pytest.fixture(scope="module")
def model_file(plain_case: Fixture, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path: Path = tmp_path_factory.mktemp("model") / "model.mllkm"
    plain_case.model.save(path)
    return path


def mllkm(*words: str | Path) -> Result:
    return CliRunner().invoke(cli, [str(word) for word in words])


@pytest.mark.parametrize("name", EXPORTS)
def test_a_file_is_replaced_only_when_told(name: str, plain_case: Fixture, tmp_path: Path) -> None:
    export, model = EXPORTS[name], plain_case.model
    summary = export(model, tmp_path / name)
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    assert set(before) == set(summary.paths)
    assert summary.size_bytes == sum(map(len, before.values()))
    other = replace(model, coef=2 * model.coef)
    with pytest.raises(ParameterError, match="exists already"):
        export(other, tmp_path / name)
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before
    export(other, tmp_path / name, overwrite=True)
    assert (tmp_path / name).read_bytes() != before[tmp_path / name]


@pytest.mark.parametrize("name", EXPORTS)
def test_a_failure_leaves_what_was_there(
    name: str, plain_case: Fixture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / name).write_text("kept")

    def fail(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(ScratchError, match=re.escape(name) + r" cannot be written \(No space left on device\): free"):
        EXPORTS[name](plain_case.model, tmp_path / name, overwrite=True)
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [(name, "kept")]


@pytest.mark.parametrize("name", EXPORTS)
def test_names_that_cannot_be_written_are_refused(name: str, plain_case: Fixture, tmp_path: Path) -> None:
    export, model = EXPORTS[name], plain_case.model
    with pytest.raises(ParameterError, match=f"name it m{Path(name).suffix}$"):
        export(model, tmp_path / "m.txt")
    with pytest.raises(ScratchError, match="absent does not exist: make it"):
        export(model, tmp_path / "absent" / name)
    (tmp_path / name).mkdir()
    with pytest.raises(ParameterError, match="is a folder: name a file in it"):
        export(model, tmp_path / name, overwrite=True)


def test_options_about_tables_are_for_machines_that_have_some(plain_case: Fixture) -> None:
    model = plain_case.model
    with pytest.raises(ParameterError, match="is about tables, of which this export has none"):
        find_tables(model, deviation=1e-4)
    with pytest.raises(ParameterError, match="global kernels is no additive model"):
        find_tables(model, "tables")
    with pytest.raises(ParameterError, match="choose one of auto, tables, direct"):
        find_tables(model, "table")  # type: ignore[arg-type]


def test_the_command_takes_the_format_from_the_name(model_file: Path, tmp_path: Path) -> None:
    for name, paths in {"m.onnx": ["m.onnx"], "m.h": ["m.h"], "m.npz": ["m.npz", "m.json"]}.items():
        result = mllkm("export", model_file, "--out", tmp_path / name)
        assert result.exit_code == 0, result.output
        assert result.stdout.splitlines()[0].startswith(" and ".join(str(tmp_path / path) for path in paths) + ": ")
        assert "by its kernels" in result.stdout
        assert all((tmp_path / path).exists() for path in paths)


def test_a_run_folder_stands_for_its_model(model_file: Path, tmp_path: Path) -> None:
    for source, name in ((model_file.parent, "a.h"), (model_file, "b.h")):
        assert mllkm("export", source, "--to", "c", "--out", tmp_path / name, "--prefix", "it").exit_code == 0
    assert (tmp_path / "a.h").read_bytes() == (tmp_path / "b.h").read_bytes()
    assert "it_predict" in (tmp_path / "a.h").read_text()


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["--out", "m.txt"], 2, "m.txt does not say the format: name it .onnx, .h or .npz"),
        (["--out", "m.h", "--to", "onnx"], 2, "name it m.onnx"),
        (["--out", "m.onnx", "--prefix", "a"], 2, "--prefix is for --to c, not for onnx"),
        (["--out", "m.h", "--precision", "double"], 2, "--precision is for --to onnx, not for c"),
        (["--out", "m.h", "--prefix", "2"], 2, "cannot begin names in C"),
        (["--out", "m.h", "--deviation", "1e-3"], 2, "is about tables"),
        (["--out", "m.h", "--deviation", "much"], 2, "'much' is not a valid float"),
        (["--out", "absent/m.h"], 7, "does not exist: make it"),
    ],
)
def test_wrong_words_are_told_in_one_line(
    words: list[str], code: int, told: str, model_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = mllkm("export", model_file, *words)
    assert result.exit_code == code
    assert told in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_a_missing_model_is_named_and_the_model_is_not_replaced(plain_case: Fixture, tmp_path: Path) -> None:
    result = mllkm("export", tmp_path / "absent.mllkm", "--out", tmp_path / "m.h")
    assert (result.exit_code, "absent.mllkm" in result.stderr) == (5, True)
    path = tmp_path / "model.npz"
    plain_case.model.save(path)
    before = path.read_bytes()
    result = mllkm("export", path, "--out", path, "--overwrite")
    assert result.exit_code == 2
    assert "is the model itself" in result.stderr
    assert path.read_bytes() == before


def test_the_program_of_the_page_prints_the_classes(
    plain_case: Fixture, tmp_path: Path, gcc: str, require_agreement: Callable[..., None]
) -> None:
    text = PAGE.read_text(encoding="utf-8")
    program = re.search(r"^```c\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    commands = re.search(r"^```text\n(gcc .*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert program is not None
    assert commands is not None
    (tmp_path / "main.c").write_text(program[1])
    export_c(plain_case.model, tmp_path / "cancer.h", prefix="cancer")
    rows = [",".join(map(str, row)) for row in plain_case.rows.tolist()]
    (tmp_path / "new.csv").write_text("\n".join(["names,of,features", *rows]))
    # The compiler of the fixture, whatever its folder.
    script = commands[1].replace("gcc ", f"'{gcc}' -Wall -Wextra -Werror ", 1)
    shell = subprocess.run(["sh", "-ec", script], cwd=tmp_path, capture_output=True, text=True, check=True, timeout=120)
    words = [line.split() for line in shell.stdout.splitlines()]
    codes = np.array([plain_case.model.classes.tolist().index(name) for name, _ in words])
    require_agreement(plain_case, np.array([[float(score)] for _, score in words]), codes)


@pytest.mark.parametrize("componentwise", [False, True])
def test_the_smallest_machines_are_exported(
    componentwise: bool, machine: Fixture, tmp_path: Path, compile_header: Fixture
) -> None:
    """One feature and one kernel, and a machine whose scores are all zero."""
    X = np.float32(np.linspace(-1, 2, 30))[:, None]
    model = machine(X, np.arange(30) // 15, "linear", componentwise, n_kernels=1)
    for number, coef in enumerate((model.coef, np.zeros_like(model.coef))):
        small = replace(model, coef=coef, local_coef=np.zeros_like(model.local_coef))
        path = tmp_path / f"m{number}"
        for suffix, export in ((".onnx", export_onnx), (".h", export_c), (".npz", export_npz)):
            export(small, path.with_suffix(suffix))
        scores, _ = compile_header(path.with_suffix(".h"), 1)(X)
        expected = small.direct().decision_function(X)
        np.testing.assert_allclose(scores[:, 0], expected, rtol=0, atol=1e-6)
        session = onnxruntime.InferenceSession(path.with_suffix(".onnx"))
        np.testing.assert_allclose(session.run(["scores"], {"features": X})[0][:, 0], expected, rtol=0, atol=1e-6)
