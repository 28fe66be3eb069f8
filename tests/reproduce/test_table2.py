"""Table 2: its records, what it says of them, and its files."""

from __future__ import annotations

import csv
import io
import json
import multiprocessing
import re
from pathlib import Path

import h5py
import numpy as np
import pytest
from click.testing import CliRunner
from scipy import stats

from mllkm_scale.cli import cli
from mllkm_scale.kernels.grid import Family
from mllkm_scale.reproduce.measure import random_split
from mllkm_scale.reproduce.methods import FAMILIES, GROUPS, table2_methods
from mllkm_scale.reproduce.parts import Parts
from mllkm_scale.reproduce.table2 import TABLE2, TableSetting, assemble, run
from mllkm_scale.reproduce.write_table2 import as_csv, as_latex, as_markdown, splits_csv

METHODS = [method.name for method in table2_methods()]


def made_up(seed: int, good: str) -> list[dict[str, dict[str, float]]]:
    """Records of ten splits in which one method is better than all others by ten points."""
    rng = np.random.default_rng(seed)
    return [
        {
            name: {
                "accuracy": float(80 + 10 * (name == good) + rng.normal()),
                "predict_s": 0.001,
                "train_s": 0.1,
                "kernels": 20 + k,
                "support": 1,
            }
            for name in METHODS
        }
        for k in range(10)
    ]


def table_rows(folder: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO((folder / "table2.csv").read_text(encoding="utf-8"))))


@pytest.fixture(scope="module")
def table():
    return assemble({"sonar": made_up(0, "SAG"), "heart": made_up(1, "MLLKM (Linear)")}, TableSetting())


def test_every_row_of_the_paper_is_there_and_all_eight_families():
    for printed in TABLE2.values():
        assert set(printed) <= set(METHODS)
    assert [name for name in METHODS if name.endswith(")") and name.startswith("MLLKM")][:8] == [
        f"MLLKM ({name})" for name in FAMILIES
    ]
    assert {Family(map, componentwise) for map, componentwise in FAMILIES.values()} == {
        Family(map, componentwise)
        for map in ("gaussian", "exponential", "linear", "squared")
        for componentwise in (False, True)
    }


def test_c_is_that_of_kernels_of_unit_trace():
    method = next(table2_methods())
    machine = method.make(200)
    assert (machine.C, machine.normalize) == (0.5, "trace")


def test_the_best_family_is_compared_with_every_other_method(table):
    assert {c.ours for c in table.comparisons if c.data == "heart"} == {"MLLKM (Linear)"}
    others = [method.name for method in table2_methods() if method.group != GROUPS[0]]
    assert [c.method for c in table.comparisons if c.data == "heart"] == others
    for comparison in table.comparisons:
        if comparison.data == "heart":
            assert comparison.test.difference > 8
            assert comparison.holm_p < 0.001
    worse = next(c for c in table.comparisons if (c.data, c.method) == ("sonar", "SAG"))
    assert worse.test.difference < -8


def test_markdown_marks_the_rows_that_no_method_beats(table):
    text = as_markdown(table)
    sonar, heart = text.split("## heart")
    bold = re.findall(r"^\| ([^|]+) \| \*\*", sonar, re.MULTILINE)
    assert bold == ["SAG"]
    assert re.findall(r"^\| ([^|]+) \| \*\*", heart, re.MULTILINE) == ["MLLKM (Linear)"]
    assert "| SAG | -" in sonar
    assert "| worse |" in sonar
    assert "81.0 ± 2.8" in sonar  # the paper's figure beside ours
    assert f"more than {table.ranks.critical_difference:.2f}." in heart


def test_csv_files_hold_the_same_figures(table):
    means = list(csv.DictReader(io.StringIO(as_csv(table))))
    splits = list(csv.DictReader(io.StringIO(splits_csv(table))))
    assert len(splits) == 10 * len(means) == 20 * len(METHODS)
    for row in means:
        own = [float(s["accuracy"]) for s in splits if (s["data"], s["method"]) == (row["data"], row["method"])]
        assert float(row["accuracy"]) == pytest.approx(np.mean(own), abs=1e-3)
    printed = next(row for row in means if (row["data"], row["method"]) == ("sonar", "LLSVM"))
    assert float(printed["paper_accuracy"]) == 67.8


def test_latex_is_balanced_and_bold_where_markdown_is(table):
    text = as_latex(table)
    assert text.count("{") == text.count("}")
    assert text.count(r"\textbf") == 2
    assert len(re.findall(r" & ", text)) == 3 * (2 * len(METHODS) + 1)


def test_ranks_are_those_of_the_means(table):
    means = np.array([[row.accuracy.mean() for row in table.of(name)] for name in table.data])
    assert table.ranks.mean == pytest.approx(stats.rankdata(-means, axis=1).mean(axis=0))
    assert assemble({"heart": made_up(1, "SAG")}, TableSetting()).ranks is None


def test_splits_have_seventy_percent_and_depend_on_the_seed():
    X, y = np.arange(40.0)[:, None], np.arange(40)
    first, again, other = random_split(X, y, 0), random_split(X, y, 0), random_split(X, y, 1)
    assert (len(first.y), len(first.y_test)) == (28, 12)
    assert np.array_equal(first.y, again.y)
    assert not np.array_equal(first.y, other.y)
    assert np.array_equal(first.X[:, 0], first.y)


def test_records_are_taken_up_unless_their_setting_differs(tmp_path: Path):
    parts = Parts(tmp_path)
    parts.keep("a", {"C": 1.0}, {"found": [1, 2]})
    assert parts.found("a", {"C": 1.0}) == {"found": [1, 2]}
    assert parts.found("a", {"C": 2.0}) is None
    assert parts.found("b", {"C": 1.0}) is None
    (tmp_path / "a.json").write_text('{"version": "0')  # cut off
    assert parts.found("a", {"C": 1.0}) is None


@pytest.fixture(scope="module")
def own_data(tmp_path_factory, real_data) -> Path:
    path = tmp_path_factory.mktemp("own") / "own.h5"
    X, y = real_data("iris")
    with h5py.File(path, "w") as file:
        file["X"], file["y"] = X[50:], y[50:]
    return path


def test_own_data_in_two_processes_and_once_more_without_work(tmp_path: Path, own_data: Path):
    command = ["reproduce", "table2", "--data", str(own_data), "--splits", "2", "--out", str(tmp_path)]
    result = CliRunner().invoke(cli, [*command, "--jobs", "2"])
    assert result.exit_code == 0, result.output
    assert {path.name for path in tmp_path.iterdir()} == {
        "parts", "table2.md", "table2.csv", "table2-splits.csv", "table2.tex",
    }  # fmt: skip
    rows = table_rows(tmp_path)
    assert [row["method"] for row in rows] == METHODS
    assert all(float(row["accuracy"]) > 70 for row in rows)
    before = (tmp_path / "table2.md").read_text()
    again = CliRunner().invoke(cli, command)
    assert "2 of 2 splits are there already" in again.output
    assert (tmp_path / "table2.md").read_text() == before
    record = json.loads((tmp_path / "parts" / "own-0.json").read_text())["record"]
    assert record["MLLKM (Gaussian)"]["kernels"] > 1


@pytest.mark.slow
def test_quick_runs_on_heart(tmp_path: Path, data_there):
    data_there("heart")
    result = CliRunner().invoke(cli, ["reproduce", "table2", "--quick", "--out", str(tmp_path)])
    assert result.exit_code == 0, result.output
    rows = {row["method"]: row for row in table_rows(tmp_path)}
    assert max(float(rows[f"MLLKM ({name})"]["accuracy"]) for name in FAMILIES) >= 82.2  # the paper's best
    assert float(rows["MLLKM (Gaussian)"]["paper_accuracy"]) == 81.6


def test_a_file_that_is_not_there_is_named(tmp_path: Path):
    result = CliRunner().invoke(cli, ["reproduce", "table2", "--data", "own.h5", "--out", str(tmp_path / "out")])
    assert result.exit_code == 3
    assert "own.h5" in result.output
    assert not (tmp_path / "out").exists()


def test_without_an_experiment_the_help_lists_them_in_their_order():
    result = CliRunner().invoke(cli, ["reproduce"])
    assert result.exit_code == 2
    names = re.findall(r"^  (table2|figure1|figure2|reviewers) ", result.output, re.MULTILINE)
    assert names == ["table2", "figure1", "figure2", "reviewers"]


def test_a_name_that_is_neither_a_file_nor_known_is_refused(tmp_path: Path):
    result = CliRunner().invoke(cli, ["reproduce", "table2", "--data", "hart", "--out", str(tmp_path / "out")])
    assert result.exit_code == 2
    assert "'hart' is not in the catalogue" in result.output
    assert "heart" in result.output


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_split_is_kept_before_the_next_is_done_and_an_interruption_ends_all_processes(
    tmp_path: Path, real_data, jobs
):
    X, y = real_data("iris")
    X, y, told = X[50::3], y[50::3], []

    def stop(line: str) -> None:
        told.append(line)
        raise KeyboardInterrupt

    before = set(multiprocessing.active_children())
    with pytest.raises(KeyboardInterrupt):
        run({"iris": (X, y)}, TableSetting(splits=3), Parts(tmp_path), jobs, stop)
    assert len(list(tmp_path.iterdir())) == 1
    assert told[0].startswith("1/3  iris, split ")
    assert set(multiprocessing.active_children()) == before
