"""`mllkm predict` reads rows of every format, writes labels to HDF5 or CSV, and takes its place in a pipe."""

from __future__ import annotations

import csv
import gzip
import os
import pty
import re
import signal
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest
from click.testing import CliRunner, Result

from mllkm_scale.cli import cli
from mllkm_scale.model import Model, load_model

Run = Callable[..., Result]
COMMAND = [sys.executable, "-m", "mllkm_scale.cli", "predict"]


@pytest.fixture(scope="module")
def run_folder(trained: tuple[Path, Result]) -> Path:
    return trained[0]


@pytest.fixture(scope="module")
def model(run_folder: Path) -> Model:
    return load_model(run_folder / "model.mllkm")


@pytest.fixture(scope="module")
def rows(wine_h5: Path) -> np.ndarray:
    with h5py.File(wine_h5) as file:
        return np.asarray(file["X_test"][:])


def write_csv(
    path: Path, rows: np.ndarray, *, names: bool = True, labels: list[str] | None = None, delimiter: str = ","
) -> Path:
    lines = [[f"f{i}" for i in range(rows.shape[1])]] if names else []
    lines += [[repr(value) for value in row] for row in rows.tolist()]
    if labels is not None:
        lines = [[*line, label] for line, label in zip(lines, [*["kind"][:names], *labels], strict=True)]
    text = "".join(delimiter.join(line) + "\n" for line in lines)
    with gzip.open(path, "wt") if path.suffix == ".gz" else path.open("w") as file:
        file.write(text)
    return path


def predicted(path: Path) -> list[list[str]]:
    """Header and cells of a CSV file."""
    with path.open(newline="") as file:
        return list(csv.reader(file, delimiter="\t" if path.suffix == ".tsv" else ","))


@pytest.mark.parametrize(
    ("name", "layout", "options"),
    [
        ("new.csv", {}, []),
        ("new.csv", {"names": False}, []),
        ("new.csv.gz", {}, ["--header"]),
        ("new.csv", {"delimiter": ";"}, []),
        ("new.tsv", {"delimiter": "\t", "names": False}, ["--no-header"]),
        ("new.txt", {"delimiter": "\t"}, ["--format", "tsv"]),
        ("new.csv", {"labels": ["good", "", "unknown", "5"] * 10}, ["--label-column", "kind"]),
        ("new.csv", {"labels": ["good"] * 40, "names": False}, ["--label-column", "last"]),
        ("new.csv", {"labels": ["1"] * 40}, ["--label-column", "13"]),
    ],
)
def test_csv_of_any_layout_becomes_the_labels_of_its_rows(
    mllkm: Run,
    run_folder: Path,
    model: Model,
    rows: np.ndarray,
    tmp_path: Path,
    name: str,
    layout: dict,
    options: list[str],
) -> None:
    source = write_csv(tmp_path / name, rows, **layout)
    result = mllkm("predict", run_folder, source, "--out", tmp_path / "p.csv", *options)
    assert result.exit_code == 0, result.stderr
    assert "p.csv: prediction of 40 rows" in result.stdout
    assert result.stderr == ""
    header, *lines = predicted(tmp_path / "p.csv")
    assert header == ["prediction"]
    assert [int(label) for [label] in lines] == model.predict(rows).tolist()


@pytest.mark.parametrize("target", ["p.csv", "p.tsv"])
def test_scores_have_a_column_a_class_and_all_their_digits(
    mllkm: Run, run_folder: Path, model: Model, rows: np.ndarray, tmp_path: Path, target: str
) -> None:
    source = write_csv(tmp_path / "new.csv", rows)
    assert mllkm("predict", run_folder, source, "--scores", "--out", tmp_path / target).exit_code == 0
    header, *lines = predicted(tmp_path / target)
    assert header == ["prediction", "score_0", "score_1", "score_2"]
    scores = np.array([[float(cell) for cell in line[1:]] for line in lines])
    np.testing.assert_array_equal(scores, model.decision_function(rows))


def save_libsvm(path: Path, rows: np.ndarray) -> None:
    lines = [" ".join(["1", *(f"{i + 1}:{v!r}" for i, v in enumerate(row) if v)]) for row in rows.tolist()]
    path.write_text("\n".join(lines) + "\n")


def save_idx(path: Path, rows: np.ndarray) -> None:
    path.write_bytes(bytes([0, 0, 0x0E, 2]) + struct.pack(">2I", *rows.shape) + rows.astype(">f8").tobytes())


def save_parquet(path: Path, rows: np.ndarray) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    columns = {f"f{i}": rows[:, i] for i in range(rows.shape[1])} | {"kind": ["?"] * len(rows)}
    parquet.write_table(pyarrow.table(columns), path)


FORMATS: dict[str, tuple[Callable[[Path, np.ndarray], object], list[str]]] = {
    "new.npy": (np.save, []),
    "new.npz": (lambda path, rows: np.savez(path, y=np.arange(3), samples=rows), ["--x", "samples"]),
    "new.libsvm": (save_libsvm, []),
    "new.idx": (save_idx, []),
    "new.parquet": (save_parquet, ["--label-column", "kind"]),
}


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_of_the_converters_is_predicted(
    mllkm: Run, run_folder: Path, model: Model, rows: np.ndarray, tmp_path: Path, name: str
) -> None:
    values = rows.copy()
    values[:, -1] = 0.0  # a sparse file does not say that there is a last feature
    save, options = FORMATS[name]
    save(tmp_path / name, values)
    result = mllkm("predict", run_folder, tmp_path / name, "--out", tmp_path / "p.h5", *options)
    assert result.exit_code == 0, result.stderr
    with h5py.File(tmp_path / "p.h5") as file:
        np.testing.assert_array_equal(file["prediction"][:], model.predict(values))


def test_small_blocks_give_the_same_file(
    mllkm: Run, run_folder: Path, rows: np.ndarray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = write_csv(tmp_path / "new.csv", np.repeat(rows, 50, axis=0))
    mllkm("predict", run_folder, source, "--scores", "--out", tmp_path / "at_once.csv")
    monkeypatch.setattr("mllkm_scale.data.readers.streams.BLOCK_BYTES", 8000)
    monkeypatch.setattr("mllkm_scale.cli.output.LINE_EVERY_S", 0.0)
    result = mllkm("predict", run_folder, source, "--scores", "--out", tmp_path / "in_blocks.csv")
    assert (tmp_path / "in_blocks.csv").read_bytes() == (tmp_path / "at_once.csv").read_bytes()
    told = result.stderr.splitlines()
    assert len(told) > 10
    assert all(re.fullmatch(r"predicting new\.csv: \d+ %, about \d+:\d\d left", line) for line in told)


def broken(rows: np.ndarray, line: int, column: int, cell: str) -> str:
    """CSV with a header, and one cell replaced; lines count from 1."""
    lines = [[f"f{i}" for i in range(13)], *([repr(value) for value in row] for row in rows.tolist())]
    lines[line - 1][column] = cell
    return "\n".join(",".join(cells) for cells in lines)


@pytest.mark.parametrize(
    ("text_of", "options", "code", "message"),
    [
        (lambda X: broken(X, 30, 2, "many"), [], 3, r"new\.csv: line 30, column 3 'f2' \(from 1\) is 'many'"),
        (lambda X: broken(X, 7, 0, ""), [], 3, r"line 7, column 1 'f0' \(from 1\) is empty"),
        (lambda X: broken(X, 9, 12, "nan"), [], 3, r"line 9, column 13 'f12' \(from 1\) is NaN"),
        (lambda X: broken(X, 9, 12, "1,2"), [], 3, "line 9 has 14 cells instead of 13"),
        (lambda X: broken(X[:, :13], 1, 12, "f12,f13"), [], 3, "has 14 features .* if one column is the label"),
        (lambda X: broken(X, 1, 0, "f0"), ["--label-column", "f3"], 3, "has 12 features per row, .* trained with 13"),
        (lambda X: broken(X, 1, 0, "f0"), ["--label-column", "kind"], 3, "'kind' is not in the header"),
        (lambda X: broken(X, 1, 0, "f0"), ["--x", "X"], 2, "x does not belong to the format csv"),
        (lambda X: broken(X, 2, 0, "1e308"), ["--no-header"], 3, r"line 1, column 1 \(from 1\) is 'f0'"),
        (lambda X: ",".join(f"f{i}" for i in range(13)), [], 3, "has a header but no rows"),
        (lambda X: "", [], 3, "is empty"),
    ],
)
def test_what_cannot_be_predicted_is_named_and_leaves_nothing(
    mllkm: Run,
    run_folder: Path,
    rows: np.ndarray,
    tmp_path: Path,
    text_of: Callable[[np.ndarray], str],
    options: list[str],
    code: int,
    message: str,
) -> None:
    (tmp_path / "new.csv").write_text(text_of(rows))
    result = mllkm("predict", run_folder, tmp_path / "new.csv", "--out", tmp_path / "p.csv", *options)
    assert result.exit_code == code
    assert re.search(message, result.stderr), result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["new.csv"]


def test_targets_that_cannot_be_are_refused(mllkm: Run, run_folder: Path, rows: np.ndarray, tmp_path: Path) -> None:
    source = write_csv(tmp_path / "new.csv", rows)
    (tmp_path / "taken.csv").write_text("precious")
    (tmp_path / "folder.csv").mkdir()
    for target, code, message in (
        ("taken.csv", 2, "exists already"),
        ("folder.csv", 2, "is a folder: name a file such as .*predictions.csv"),
        ("new.csv", 2, "is the file to be predicted"),
        ("p.xlsx", 2, "name it p.h5 or p.csv"),
        ("absent/p.csv", 7, "does not exist: make it first"),
    ):
        result = mllkm("predict", run_folder, source, "--out", tmp_path / target)
        assert (result.exit_code, bool(re.search(message, result.stderr))) == (code, True), result.stderr
    assert (tmp_path / "taken.csv").read_text() == "precious"
    assert mllkm("predict", run_folder, source, "--out", tmp_path / "taken.csv", "--overwrite").exit_code == 0


def test_standard_input_and_output_hold_nothing_but_rows(
    run_folder: Path, model: Model, rows: np.ndarray, tmp_path: Path
) -> None:
    text = write_csv(tmp_path / "new.csv", rows).read_text()
    result = CliRunner().invoke(cli, ["predict", str(run_folder), "-", "--out", "-"], input=text)
    assert result.exit_code == 0
    assert result.stdout.splitlines() == ["prediction", *map(str, model.predict(rows).tolist())]
    assert result.stderr == ""
    result = CliRunner().invoke(cli, ["predict", str(run_folder), "-", "--out", "-"], input="1,2,3\n")
    assert (result.exit_code, result.stdout) == (3, "")
    assert "standard input has 3 features per row" in result.stderr
    result = CliRunner().invoke(cli, ["predict", str(run_folder), "-", "--format", "npz", "--out", "-"], input="")
    assert result.exit_code == 2
    assert "standard input cannot be npz" in result.stderr


def test_a_row_that_comes_through_a_pipe_is_predicted_before_the_next(
    run_folder: Path, model: Model, rows: np.ndarray
) -> None:
    lines = [",".join(map(repr, row)) + "\n" for row in rows[:3].tolist()]
    with subprocess.Popen(
        [*COMMAND, str(run_folder), "-", "--out", "-"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        answers = []
        for i, line in enumerate(lines):
            process.stdin.write(line)
            process.stdin.flush()
            if i == 0:
                assert process.stdout.readline() == "prediction\n"
            answers.append(int(process.stdout.readline()))
        process.stdin.close()
        assert process.wait(30) == 0
    assert answers == model.predict(rows[:3]).tolist()


def test_a_reader_that_leaves_is_told_in_one_line(run_folder: Path, rows: np.ndarray, tmp_path: Path) -> None:
    source = write_csv(tmp_path / "new.csv", np.repeat(rows, 50, axis=0))
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as pipe:
        process = subprocess.run(
            [*COMMAND, str(run_folder), str(source), "--out", "-"], stdout=pipe, stderr=subprocess.PIPE, timeout=60
        )
    assert process.returncode == 7
    assert process.stderr.decode().splitlines() == [
        "mllkm: error: standard output was closed by its reader: read all lines, or name a file"
    ]


def test_after_an_interrupt_nothing_is_left(run_folder: Path, rows: np.ndarray, tmp_path: Path) -> None:
    with subprocess.Popen(
        [*COMMAND, str(run_folder), "-", "--out", str(tmp_path / "p.csv")],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,
    ) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        process.stdin.write((",".join(map(repr, rows[0].tolist())) + "\n").encode())
        while not list(tmp_path.iterdir()) and process.poll() is None:
            pass  # the target is begun when the model is loaded
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
        assert process.stderr.read().decode().strip() == "mllkm: interrupted"
    assert list(tmp_path.iterdir()) == []


def test_a_terminal_sees_a_bar(run_folder: Path, rows: np.ndarray, tmp_path: Path) -> None:
    source = write_csv(tmp_path / "[b]new.csv", np.repeat(rows, 300, axis=0))
    terminal, stderr = pty.openpty()
    process = subprocess.run(
        [*COMMAND, str(run_folder), str(source), "--out", str(tmp_path / "p.csv")],
        stdout=subprocess.PIPE,
        stderr=stderr,
        env=os.environ | {"TERM": "xterm", "COLUMNS": "100"},
        timeout=60,
    )
    os.close(stderr)
    shown = b""
    try:
        while part := os.read(terminal, 4096):
            shown += part
    except OSError:  # the end, on Linux
        pass
    os.close(terminal)
    assert process.returncode == 0
    assert b"12,000 rows" in process.stdout
    assert b"predicting [b]new.csv" in shown
    assert "━".encode() in shown
    assert b"%" in shown
