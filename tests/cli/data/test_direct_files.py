"""CSV and Parquet where commands read HDF5: converted once, matched by name, read again after a change."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from click.testing import Result
from pyarrow import csv, parquet

Run = Callable[..., Result]
QUICK = ("--anchors", "all", "--C", "1", "--jobs", "1")


def homes(n: int, seed: int) -> str:
    """Rows with text, a date, a boolean and missing values; the label is the column in the middle."""
    rng = np.random.default_rng(seed)
    lines = ["town,rooms,sold,since,garden"]
    for i in range(n):
        town, rooms, garden = rng.choice(["Lyon", "Graz", "Oslo"]), int(rng.integers(1, 8)), rng.random() < 0.5
        label = "yes" if (town == "Oslo") != (rooms > 4) else "no"
        lines.append(f"{'' if i % 11 == 4 else town},{'NA' if i % 13 == 2 else rooms},{label},2021-{1 + i % 12:02}-01,")
        lines[-1] += "true" if garden else "false"
    return "\n".join(lines) + "\n"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("homes")
    (folder / "train.csv").write_text(homes(150, 0))
    (folder / "test.csv").write_text(homes(60, 1).replace("Graz", "Atlantis"))
    lines = [line.split(",") for line in (folder / "test.csv").read_text().splitlines()]
    turned = [[*cells[::-1], "beside"] for cells in lines]
    (folder / "turned.csv").write_text("".join(",".join(cells) + "\n" for cells in turned))
    with gzip.open(folder / "train.csv.gz", "wb") as packed:
        packed.write((folder / "train.csv").read_bytes())
    table = csv.read_csv(folder / "train.csv", convert_options=csv.ConvertOptions(null_values=["", "NA"]))
    parquet.write_table(
        table.set_column(0, "town", pa.array([text or None for text in table["town"].to_pylist()])),
        folder / "train.parquet",
    )
    return folder


@pytest.fixture(scope="module")
def trained(files: Path, mllkm: Run) -> Path:
    done = mllkm("convert", files / "train.csv", files / "train.h5", "--label-column", "sold")
    assert done.exit_code == 0, done.output
    done = mllkm("train", files / "train.h5", "--out", files / "by-hand", *QUICK)
    assert done.exit_code == 0, done.output
    return files / "by-hand"


@pytest.mark.parametrize("name", ["train.csv", "train.csv.gz", "train.parquet"])
def test_a_table_is_trained_on_as_its_conversion_is(files: Path, trained: Path, mllkm: Run, tmp_path: Path, name: str):
    done = mllkm("train", files / name, "--out", tmp_path / "run", "--target", "sold", *QUICK)
    assert done.exit_code == 0, done.output
    for line in ("town: category of 3 levels", "rooms: number", "since: date", "garden: boolean"):
        assert f"  {line}" in done.stderr
    assert (tmp_path / "run" / "model.mllkm").read_bytes() == (trained / "model.mllkm").read_bytes()


def test_test_rows_are_matched_by_name_wherever_they_are_given(files: Path, trained: Path, mllkm: Run, tmp_path: Path):
    errors = []
    for name in ("test.csv", "turned.csv"):
        done = mllkm("evaluate", trained, files / name, "--label-column", "sold", "--json")
        assert done.exit_code == 0, done.output
        errors.append(json.loads(done.stdout)["confusion"])
    assert errors[0] == errors[1]
    test = files / "turned.csv"
    done = mllkm("train", files / "train.csv", "--out", tmp_path, "--target", "sold", "--test", test, *QUICK)
    assert done.exit_code == 0, done.output
    assert "beside" in done.stderr
    wrong = np.array(errors[0]).sum() - np.trace(errors[0])
    assert f"error {100 * wrong / 60:.2f} %" in done.output


def test_a_table_that_lacks_a_feature_or_has_a_wrong_cell_is_refused_by_name(
    files: Path, trained: Path, mllkm: Run, tmp_path: Path
):
    (tmp_path / "lacking.csv").write_text("town,sold,since\nLyon,yes,2021-01-01\n")
    done = mllkm("evaluate", trained, tmp_path / "lacking.csv", "--label-column", "sold")
    assert done.exit_code != 0
    assert "'rooms'" in done.stderr
    (tmp_path / "wrong.csv").write_text((files / "test.csv").read_text() + "Lyon,many,yes,2021-01-01,true\n")
    done = mllkm("evaluate", trained, tmp_path / "wrong.csv", "--label-column", "sold")
    assert done.exit_code != 0
    assert "line 62, column 2 'rooms' (from 1) is 'many', not a number" in done.stderr


def test_a_run_goes_on_with_what_it_has_read_unless_the_file_has_changed(files: Path, mllkm: Run, tmp_path: Path):
    source, run = tmp_path / "train.csv", tmp_path / "run"
    source.write_text((files / "train.csv").read_text())
    command = ("train", source, "--out", run, "--target", "sold", *QUICK)
    done = mllkm(*command, "--max-rounds", "1")
    assert done.exit_code == 0, done.output
    stored = run / "train.csv.h5"
    written = stored.stat().st_mtime_ns
    done = mllkm(*command, "--resume")
    assert done.exit_code == 0, done.output
    assert "as it was read before" in done.stderr
    assert stored.stat().st_mtime_ns == written
    done = mllkm(*command)
    assert done.exit_code == 2
    assert "already holds a training" in done.stderr
    source.write_text(source.read_text() + "Oslo,1,no,2021-01-01,true\n")
    done = mllkm(*command, "--resume")
    assert done.exit_code == 6, done.output
    assert stored.stat().st_mtime_ns != written


def test_plan_path_and_job_read_tables_too(files: Path, mllkm: Run, tmp_path: Path):
    done = mllkm("plan", files / "train.csv", "--target", "sold", "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["sizes"]["n_rows"] == 150
    done = mllkm("path", files / "train.csv", "--out", tmp_path / "path", "--target", "sold", "--Cs", "0.5,1", *QUICK)
    assert done.exit_code == 0, done.output
    job = tmp_path / "job.toml"
    job.write_text(
        f'[data]\npath = "{files}/train.csv"\ntest = "{files}/test.csv"\n'
        'label_column = "sold"\ncategories = ["rooms"]\n'
        '[parameters]\nanchors = "all"\nC = 1\n[output]\nrun = "run"\n'
    )
    done = mllkm("run", job, "--dry-run")
    assert done.exit_code == 0, done.output
    assert "rooms: category of 7 levels" in done.output
    assert "60 rows held out" in done.output


@pytest.mark.parametrize("name", ["train.csv", "train.parquet"])
def test_a_table_is_streamed(files: Path, mllkm: Run, tmp_path: Path, name: str):
    command = ("stream", files / name, "--out", tmp_path / "run", "--label-column", "sold", "--warm-up", "80")
    done = mllkm(*command)
    assert done.exit_code == 0, done.output
    done = mllkm("evaluate", tmp_path / "run", files / "test.csv", "--label-column", "sold", "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["error"] < 0.4


def test_a_file_whose_name_tells_nothing_is_read_by_its_format(files: Path, trained: Path, mllkm: Run, tmp_path: Path):
    source = tmp_path / "homes.data"
    source.write_text((files / "train.csv").read_text().replace(",", ", "))
    done = mllkm("train", source, "--format", "csv", "--out", tmp_path / "run", "--target", "sold", *QUICK)
    assert done.exit_code == 0, done.output
    assert (tmp_path / "run" / "model.mllkm").read_bytes() == (trained / "model.mllkm").read_bytes()
    done = mllkm("evaluate", tmp_path / "run", source, "--format", "csv", "--target", "sold")
    assert done.exit_code == 0, done.output
