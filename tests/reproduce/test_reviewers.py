"""The reviewers' comparisons run, and their parts are right: tasks, families of Gaussian kernels, smaller machines."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from sklearn.svm import SVC

from mllkm_scale.cli import cli
from mllkm_scale.cli.commands.reproduce import REVIEWERS
from mllkm_scale.reproduce.reviewers.maps import GaussianFamily, GaussianMKLClassifier
from mllkm_scale.reproduce.reviewers.tasks import TASKS
from mllkm_scale.reproduce.reviewers.write import COMPARISONS


def test_the_command_knows_every_comparison():
    assert tuple(COMPARISONS) == REVIEWERS


@pytest.mark.slow
def test_all_comparisons_run_and_are_taken_up(tmp_path: Path, data_there):
    data_there("usps", "covtype", "heart")
    command = ["reproduce", "reviewers", "--quick", "--out", str(tmp_path)]
    result = CliRunner().invoke(cli, command)
    assert result.exit_code == 0, result.output
    for name in REVIEWERS:
        assert {path.suffix for path in tmp_path.glob(f"{name}.*")} == {".json", ".md", ".png", ".svg"}
    costs = json.loads((tmp_path / "costs.json").read_text())["usps"]["points"]
    assert costs[0]["method"] == "linear SVM"
    ours = [point for point in costs if point["method"] == "MLLKM"]
    assert ours[0]["kernels"] > ours[-1]["kernels"]
    assert ours[-1]["kernels"] <= 50
    learned = [point for point in costs if point["method"] == "MLLKM, learned"]
    assert learned[-1]["kernels"] <= 50
    assert {point["method"] for point in costs} >= {"LLSVM", "LDKL", "DC-Pred++", "Nystroem", "SVC (RBF)"}
    memory = json.loads((tmp_path / "memory.json").read_text())
    assert all(0 < point["peak_bytes"] < 1e9 for point in memory["points"])
    written = {path: path.stat().st_mtime_ns for path in (tmp_path / "parts").iterdir()}
    assert CliRunner().invoke(cli, command).exit_code == 0
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "parts").iterdir()} == written


def test_a_data_set_without_test_rows_is_split_without_overlap(data_there):
    data_there("covtype")
    split = TASKS["covtype"].split(lambda line: None, True)
    assert (len(split.y), len(split.y_test)) == (300, 200)
    assert set(np.unique(split.y)) == {0, 1}
    assert split.X.min() >= 0
    assert split.X.max() <= 1
    rows = {row.tobytes() for row in split.X}
    assert sum(row.tobytes() in rows for row in split.X_test) == 0


def test_gaussian_kernels_in_mkl_with_one_gamma_are_an_svm_without_bias(small_problem):
    X, signs = small_problem("breast_cancer", 100)
    machine = GaussianMKLClassifier(C=100.0, gammas=(0.05,), tol=1e-6).fit(X, signs[:, 0])
    # One constant feature more, of great length, is a bias: the kernel has none, so a centred problem is compared.
    K = np.exp(-0.05 * ((X[:, None] - X[None]) ** 2).sum(axis=-1))
    duals = machine._state.duals[:, 0]
    f = K @ (duals * signs[:, 0])
    np.testing.assert_allclose(machine.decision_function(X), f, atol=1e-10)
    free = (duals > 1e-6) & (duals < 1 - 1e-6)
    np.testing.assert_allclose(signs[free, 0] * f[free], 1.0, atol=1e-3)
    assert np.all(signs[duals <= 1e-6, 0] * f[duals <= 1e-6] >= 1 - 1e-3)
    assert np.mean(machine.predict(X) == SVC(C=1.0, gamma=0.05).fit(X, signs[:, 0]).predict(X)) > 0.95


def test_forms_of_gaussian_kernels_agree_with_plain_ones():
    rng = np.random.default_rng(0)
    X, a = rng.normal(size=(12, 3)), rng.normal(size=(12, 2))
    family = GaussianFamily(np.array([0.1, 1.0]))
    for q, gamma in zip(family.quadratic_forms(X, a), family.gammas, strict=True):
        K = np.exp(-gamma * ((X[:, None] - X[None]) ** 2).sum(axis=-1))
        assert q == pytest.approx(sum(a[:, k] @ K @ a[:, k] for k in range(2)))
