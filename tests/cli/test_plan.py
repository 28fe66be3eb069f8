from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest
from click.testing import Result

Run = Callable[..., Result]


def test_the_plan_is_a_table_with_total_budget_and_the_reason_of_its_form(mllkm: Run, wine_h5: Path) -> None:
    result = mllkm("plan", wine_h5, "--memory", "1GB")
    assert result.exit_code == 0, result.stderr
    assert "total" in result.stdout
    assert "of 1.0 GB" in result.stdout
    assert "inner form: " in result.stdout


def test_the_plan_as_json_stays_within_the_budget_asked_for(mllkm: Run, wine_h5: Path) -> None:
    result = mllkm("plan", wine_h5, "--memory", "1GB", "--json")
    plan = json.loads(result.stdout)
    assert plan["total_bytes"] <= plan["budget_bytes"] == 10**9
    assert plan["inner"] in ("dense", "tiles", "features")
    assert plan["reason"]


def test_a_budget_that_cannot_work_is_refused_with_one_that_can(mllkm: Run, wine_h5: Path) -> None:
    result = mllkm("plan", wine_h5, "--memory", "10MB")
    assert result.exit_code == 4
    assert "at least" in result.stderr


@pytest.mark.parametrize(("option", "name"), [("--x", "Z"), ("--y", "labels")])
def test_a_data_set_that_is_not_there_is_named_with_those_that_are(
    mllkm: Run, wine_h5: Path, option: str, name: str
) -> None:
    result = mllkm("plan", wine_h5, option, name)
    assert result.exit_code == 3
    assert f"no data set '{name}'" in result.stderr
    assert "X_test" in result.stderr


def test_a_file_that_is_not_there_is_named_with_the_remedy(mllkm: Run, tmp_path: Path) -> None:
    result = mllkm("plan", tmp_path / "absent.h5")
    assert result.exit_code == 3
    assert "mllkm convert" in result.stderr


def test_other_names_of_the_data_sets_can_be_given(mllkm: Run, tmp_path: Path) -> None:
    with h5py.File(tmp_path / "d.h5", "w") as file:
        file["images"], file["digits"] = np.random.default_rng(0).normal(size=(40, 3)), np.arange(40) % 2
    result = mllkm("plan", tmp_path / "d.h5", "--x", "images", "--y", "digits", "--anchors", "10", "--json")
    assert json.loads(result.stdout)["sizes"]["n_anchors"] == 10
