"""Tables with text from CSV to predictions by the command line, without preparation by hand."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pyarrow as pa
import pytest
from click.testing import Result
from pyarrow import parquet

from mllkm_scale import Dataset, load_model
from mllkm_scale.data import convert
from mllkm_scale.data.readers import streams

Run = Callable[..., Result]
ROOT = Path(__file__).parents[3]
TABLES = Path(os.environ.get("MLLKM_DATA", ROOT.parent / "shared" / "data")) / "tables"

HEADER = "name,town,income,member,since,code,nothing,note,class"


def users(n: int, seed: int = 0, label: bool = True) -> str:
    """Lines of a CSV file as users have them: quotes, empty cells, booleans, dates, numbers as text."""
    rng = np.random.default_rng(seed)
    lines = [HEADER if label else HEADER.rpartition(",")[0]]
    for i in range(n):
        town = rng.choice(["Lyon", "Łódź", '"Graz, old"'])
        income = rng.normal(30.0, 8.0)
        member = rng.random() < 0.5
        cells = [
            f'"Doe ""{i}"", J."',
            "" if i % 13 == 5 else town,
            "NA" if i % 17 == 3 else f"{income:.2f}",
            "true" if member else "FALSE",
            f"2021-{1 + i % 12:02}-15",
            f'"{i % 7}"',
            "",
            f" note {i % 3} ",
        ]
        cells += ["yes" if town == "Łódź" or (income > 30 and member) else "no"] if label else []
        lines.append(",".join(cells))
    return "\n".join(lines) + "\n"


@pytest.fixture(scope="module")
def trained_on_users(tmp_path_factory: pytest.TempPathFactory, mllkm: Run) -> Path:
    folder = tmp_path_factory.mktemp("users")
    (folder / "train.csv").write_text(users(160), encoding="utf-8")
    done = mllkm("convert", folder / "train.csv", folder / "train.h5")
    assert done.exit_code == 0, done.output
    assert "  town: category of 3 levels ('Graz, old'" in done.output or "'Graz, old'" in done.output
    for line in ("income: number", "member: boolean", "since: date", "code: number", "nothing: number"):
        assert f"  {line}\n" in done.output
    done = mllkm("train", folder / "train.h5", "--out", folder / "run", "--anchors", "all", "--C", "1", "--report")
    assert done.exit_code == 0, done.output
    assert "8 columns of the table are" in done.output
    return folder


def labels_of(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").split()[1:]


def test_a_file_with_new_levels_is_predicted_as_its_conversion_is(trained_on_users: Path, tmp_path: Path, mllkm: Run):
    text = users(60, seed=1, label=False).replace("Lyon", "Atlantis")
    (tmp_path / "new.csv").write_text(text, encoding="utf-8")
    assert mllkm("convert", tmp_path / "new.csv", tmp_path / "new.h5", "--label-column", "none").exit_code == 0
    run = trained_on_users / "run"
    for name in ("new.csv", "new.h5"):
        done = mllkm("predict", run, tmp_path / name, "--scores", "--out", tmp_path / f"{name}.out.csv")
        assert done.exit_code == 0, done.output
    assert (tmp_path / "new.csv.out.csv").read_bytes() == (tmp_path / "new.h5.out.csv").read_bytes()


def test_rows_held_out_are_measured_on_the_table_as_it_is(trained_on_users: Path, tmp_path: Path, mllkm: Run):
    (tmp_path / "test.csv").write_text(users(80, seed=2), encoding="utf-8")
    assert mllkm("convert", tmp_path / "test.csv", tmp_path / "test.h5").exit_code == 0
    measured = mllkm("evaluate", trained_on_users / "run", tmp_path / "test.h5", "--json")
    accuracy = json.loads(measured.output)["accuracy"]
    assert accuracy > 0.75
    out = tmp_path / "labels.csv"
    done = mllkm("predict", trained_on_users / "run", tmp_path / "test.csv", "--label-column", "class", "--out", out)
    assert done.exit_code == 0, done.output
    truth = [line.rpartition(",")[2] for line in users(80, seed=2).splitlines()[1:]]
    assert np.mean([a == b for a, b in zip(labels_of(out), truth, strict=True)]) == pytest.approx(accuracy)


def test_test_rows_in_the_file_are_encoded_by_the_training_rows(tmp_path: Path, mllkm: Run):
    (tmp_path / "all.csv").write_text(users(160), encoding="utf-8")
    done = mllkm("convert", tmp_path / "all.csv", tmp_path / "all.h5", "--hold-out", "0.25")
    assert done.exit_code == 0, done.output
    done = mllkm("train", tmp_path / "all.h5", "--out", tmp_path / "run", "--anchors", "all", "--C", "1")
    assert done.exit_code == 0, done.output
    told = mllkm("evaluate", tmp_path / "run", tmp_path / "all.h5", "--x", "X_test", "--y", "y_test", "--json")
    stored = json.loads((tmp_path / "run" / "evaluation.json").read_text())
    assert json.loads(told.output)["confusion"] == stored["confusion"]


def test_parquet_is_the_same_table(trained_on_users: Path, tmp_path: Path, mllkm: Run):
    table = {
        "name": ["a", "b"],
        "town": pa.array(["Łódź", None]).dictionary_encode(),
        "income": [31.25, None],
        "member": [True, False],
        "since": pa.array([18762, 18763], pa.date32()),
        "code": [3, 4],
        "nothing": pa.array([None, None], pa.string()),
        "note": ["note 1", "new"],
    }
    parquet.write_table(pa.table(table), tmp_path / "new.parquet")
    lines = ["a,Łódź,31.25,true,2021-05-15,3,,note 1", "b,,,false,2021-05-16,4,,new"]
    (tmp_path / "new.csv").write_text("\n".join([HEADER.rpartition(",")[0], *lines]) + "\n", encoding="utf-8")
    assert mllkm("convert", tmp_path / "new.parquet", tmp_path / "new.h5", "--label-column", "none").exit_code == 0
    for name in ("new.parquet", "new.csv", "new.h5"):
        done = mllkm(
            "predict", trained_on_users / "run", tmp_path / name, "--scores", "--out", tmp_path / f"{name}.csv"
        )
        assert done.exit_code == 0, done.output
    scores = {(tmp_path / f"{name}.csv").read_bytes() for name in ("new.parquet", "new.csv", "new.h5")}
    assert len(scores) == 1


def test_reports_and_descriptions_are_made_of_the_run(trained_on_users: Path, mllkm: Run):
    assert (trained_on_users / "run" / "report.html").exists()
    assert mllkm("report", trained_on_users / "run").exit_code == 0
    told = mllkm("inspect", trained_on_users / "run")
    assert "8 in," in told.output
    assert "8 columns of a table as" in told.output
    planned = mllkm("plan", trained_on_users / "train.h5")
    assert planned.exit_code == 0, planned.output


def test_bad_cells_are_named_by_line_and_column(trained_on_users: Path, tmp_path: Path, mllkm: Run):
    lines = users(20, seed=1, label=False).splitlines()
    lines[7] = lines[7].replace("true", "perhaps").replace("FALSE", "perhaps")
    (tmp_path / "new.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    done = mllkm("predict", trained_on_users / "run", tmp_path / "new.csv", "--out", tmp_path / "out.csv")
    assert done.exit_code == 3
    assert "line 8, column 4 'member' (from 1) is 'perhaps', not true or false" in done.output
    assert not (tmp_path / "out.csv").exists()


def test_columns_are_named_as_categories_or_numbers(tmp_path: Path, mllkm: Run):
    (tmp_path / "a.csv").write_text("zip,size,kind\n01,1,u\n02,x,v\n01,2,u\n")
    done = mllkm("convert", tmp_path / "a.csv", tmp_path / "a.h5", "--categories", "zip, size")
    assert "  zip: category of 2 levels ('01', '02')\n  size: category of 3 levels" in done.output
    done = mllkm("convert", tmp_path / "a.csv", tmp_path / "b.h5", "--as-number", "size")
    assert done.exit_code == 3
    assert "line 3, column 2 'size' (from 1) is 'x', not a number" in done.output
    assert mllkm("convert", tmp_path / "a.csv", tmp_path / "b.h5", "--categories", "no").exit_code == 2


def test_codes_and_levels_stand_beside_the_rows_for_any_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "a.csv").write_text(users(50), encoding="utf-8")
    convert(tmp_path / "a.csv", tmp_path / "whole.h5")
    monkeypatch.setattr(streams, "BLOCK_BYTES", 100)
    convert(tmp_path / "a.csv", tmp_path / "parts.h5")
    with Dataset.open(tmp_path / "whole.h5") as whole, Dataset.open(tmp_path / "parts.h5") as parts:
        assert whole.columns == parts.columns
        np.testing.assert_array_equal(whole.part(0, 50), parts.part(0, 50))
        assert whole.columns is not None
        assert whole.feature_names == tuple(HEADER.split(",")[:-1])


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("column_kinds", ["number", "picture"]),
        ("column_level_starts", [0, 5, 2]),
        ("column_level_starts", [0, 1]),
        ("column_levels", ["u", "u"]),
    ],
)
def test_a_file_whose_columns_do_not_fit_is_refused(tmp_path: Path, mllkm: Run, name: str, values: list[object]):
    (tmp_path / "a.csv").write_text("a,b,kind\n1,u,x\n2,v,y\n")
    convert(tmp_path / "a.csv", tmp_path / "a.h5")
    with h5py.File(tmp_path / "a.h5", "r+") as file:
        del file[name]
        file[name] = values
    done = mllkm("train", tmp_path / "a.h5", "--out", tmp_path / "run")
    assert done.exit_code == 3
    assert "convert" in done.output


def test_a_code_without_a_level_is_refused(tmp_path: Path, mllkm: Run):
    (tmp_path / "a.csv").write_text("a,b,kind\n1,u,x\n2,v,y\n")
    convert(tmp_path / "a.csv", tmp_path / "a.h5")
    with h5py.File(tmp_path / "a.h5", "r+") as file:
        file["X"][1, 1] = 7
    done = mllkm("train", tmp_path / "a.h5", "--out", tmp_path / "run")
    assert done.exit_code == 3
    assert "has 7, which no category is coded by at row 1, column 1 'b' (0-based)" in done.output


@pytest.mark.skipif(not TABLES.is_dir(), reason=f"{TABLES} is not there")
@pytest.mark.parametrize(
    ("name", "columns", "categories"), [("crx", 15, 9), ("german", 20, 13), ("mushroom", 22, 22), ("splice", 60, 60)]
)
def test_tables_of_the_world_are_converted_and_learned(
    tmp_path: Path, mllkm: Run, name: str, columns: int, categories: int
):
    done = mllkm("convert", TABLES / f"{name}.csv", tmp_path / "t.h5", "--hold-out", "0.8")
    assert done.exit_code == 0, done.output
    with Dataset.open(tmp_path / "t.h5") as data:
        assert data.columns is not None
        assert data.n_features == columns
        assert sum(column.kind == "category" for column in data.columns.columns) == categories
    done = mllkm(
        *("train", tmp_path / "t.h5", "--out", tmp_path / "run", "--anchors", "learned", "--finish", "none"),
        *("--ridge", "8", "--scaling", "standard"),
    )
    assert done.exit_code == 0, done.output
    measured = json.loads((tmp_path / "run" / "evaluation.json").read_text())
    assert measured["error"] < {"crx": 0.2, "german": 0.35, "mushroom": 0.02, "splice": 0.15}[name]
    assert load_model(tmp_path / "run" / "model.mllkm").encoding is not None
