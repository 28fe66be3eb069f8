"""Sparse rows into fit, predict and commands: the machine of the dense rows, in the memory of the sparse ones."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from scipy import sparse
from sklearn.model_selection import cross_val_score

from mllkm_scale import MLLKMClassifier, load_model
from mllkm_scale.cli import cli
from mllkm_scale.data import Dataset, convert
from mllkm_scale.errors import DataError, ParameterError
from mllkm_scale.export import export_c, export_npz
from mllkm_scale.model import evaluate
from mllkm_scale.path import train_path

D = 3000


def texts(n: int, seed: int) -> tuple[sparse.csr_array, np.ndarray]:
    """Counts of words: of the words of a topic, and of others."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 3
    words = rng.integers(0, D, (n, 30))
    words[0, 0] = D - 1
    of_topic = rng.integers(0, 60, (n, 12)) + 100 * y[:, None]
    columns = np.concatenate([words, of_topic], axis=1)
    X = sparse.coo_array((np.ones(columns.size), (np.repeat(np.arange(n), 42), columns.ravel())), shape=(n, D))
    return sparse.csr_array(X), y


def dump(path, X, y):
    """A LIBSVM file, whose indices count from 1."""
    X = sparse.csr_array(X)
    rows = [
        " ".join([str(label), *(f"{j + 1}:{v!r}" for j, v in zip(X.indices[a:b], X.data[a:b].tolist(), strict=True))])
        for label, a, b in zip(y.tolist(), X.indptr[:-1], X.indptr[1:], strict=True)
    ]
    path.write_text("\n".join(rows) + "\n")


@pytest.fixture(scope="module")
def data():
    return texts(150, 0), texts(90, 1)


@pytest.mark.parametrize("reduction", ["auto", "svd:12", "random:64"])
def test_sparse_rows_make_the_machine_of_the_dense_ones(data, reduction, tmp_path):
    (X, y), (X_test, y_test) = data
    machine = MLLKMClassifier(reduction=reduction, anchors="all", C=1.0, n_jobs=1).fit(X, y)
    assert machine.n_features_in_ == D
    scores = machine.decision_function(X_test)
    for form in (sparse.csc_matrix, sparse.coo_array, sparse.csr_matrix):
        np.testing.assert_array_equal(machine.decision_function(form(X_test)), scores)
    np.testing.assert_array_equal(machine.decision_function(X_test.toarray()), scores)
    assert machine.score(X_test, y_test) > (0.6 if reduction == "random:64" else 0.9)
    if reduction != "auto":
        dense = MLLKMClassifier(reduction=reduction, anchors="all", C=1.0, n_jobs=2).fit(X.toarray(), y)
        np.testing.assert_array_equal(dense.decision_function(X_test), scores)
    machine.model_.save(tmp_path / "model.mllkm")
    model = load_model(tmp_path / "model.mllkm")
    np.testing.assert_array_equal(model.decision_function(X_test), scores)
    np.testing.assert_array_equal(model.machine.decision_function(model.reduction.apply(X_test)), scores)
    np.testing.assert_allclose(model.server().scores(X_test[[4]].toarray()[0]), scores[4], rtol=1e-9)
    np.testing.assert_allclose(model.server().decision_function(X_test), scores, rtol=1e-9)
    assert evaluate(model, Dataset.from_arrays(X_test, y_test)).accuracy == machine.score(X_test, y_test)
    with pytest.raises(DataError, match="2999 features"):
        model.predict(X_test[:, 1:])
    for export in (export_c, export_npz):
        with pytest.raises(ParameterError, match=r"3,000 columns, which no export holds: export model\.machine"):
            export(model, tmp_path / ("model.h" if export is export_c else "model.npz"))


def test_few_sparse_columns_are_trained_on_as_they_are(real_data):
    X, y = real_data("iris")
    sparse_one, dense = (MLLKMClassifier(anchors="all", n_jobs=1).fit(rows, y) for rows in (sparse.csr_array(X), X))
    np.testing.assert_array_equal(sparse_one.decision_function(X), dense.decision_function(sparse.csr_matrix(X)))
    assert sparse_one.model_.reduction is None
    assert cross_val_score(MLLKMClassifier(anchors="all", C=1.0, n_jobs=1), sparse.csr_matrix(X), y, cv=3).mean() > 0.9


def test_a_path_is_trained_on_sparse_rows(data, tmp_path):
    X, y = data[0]
    result = train_path(Dataset.from_arrays(X, y), 0.2, Cs=[0.5, 1.0], run_dir=tmp_path, anchors="all", n_jobs=1)
    assert min(point.error for point in result.points) < 0.2
    assert result.model(result.points[0]).reduction.n_columns == D


def test_libsvm_files_go_through_the_commands_without_their_zeros(data, tmp_path):
    (X, y), (X_test, y_test) = data
    dump(tmp_path / "train.svm", X, y)
    dump(tmp_path / "test.svm", X_test[:, : D // 2], y_test)

    def mllkm(*arguments):
        done = CliRunner().invoke(cli, [str(argument) for argument in arguments])
        assert done.exit_code == 0, done.output
        return done

    mllkm("convert", tmp_path / "train.svm", tmp_path / "train.h5", "--sparse", "--hold-out", "0.2")
    run = ("--anchors", "all", "--C", "1", "--jobs", "1", "--reduction", "svd:12")
    done = mllkm("train", tmp_path / "train.h5", "--out", tmp_path / "held", *run)
    assert "X_test: 30 rows" in done.output
    assert "3,000 columns are 12 features" in done.output
    done = mllkm("train", tmp_path / "train.svm", "--out", tmp_path / "run", "--test", tmp_path / "test.svm", *run)
    with Dataset.open(tmp_path / "run" / "train.svm.h5") as stored:
        assert stored.is_sparse
        np.testing.assert_array_equal(stored.part(0, 150), X.toarray())
    model = load_model(tmp_path / "run" / "model.mllkm")
    direct = MLLKMClassifier(anchors="all", C=1.0, reduction="svd:12", n_jobs=1).fit(X, y).model_
    np.testing.assert_array_equal(model.decision_function(X), direct.decision_function(X))
    short = X_test.copy()[:, : D // 2]
    short.resize(90, D)
    expected = model.predict(short)
    for name in ("test.svm", "test.h5"):
        if name == "test.h5":
            convert(tmp_path / "test.svm", tmp_path / name, sparse=False)
            continue
        mllkm("predict", tmp_path / "run", tmp_path / name, "--out", tmp_path / "labels.csv", "--overwrite")
        found = np.loadtxt(tmp_path / "labels.csv", skiprows=1)
        np.testing.assert_array_equal(found, expected)
    done = mllkm("evaluate", tmp_path / "run", tmp_path / "test.svm", "--json")
    assert json.loads(done.stdout)["accuracy"] == np.mean(expected == y_test)
    plan = json.loads(mllkm("plan", tmp_path / "train.svm", "--json", "--reduction", "svd:12").stdout)
    held = {row["what"]: row["bytes"] for row in plan["rows"]}["reduction of the columns"]
    assert held == 8 * (D * 12 + 150 * 12)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="there is no /proc to read the peak from")
def test_twenty_thousand_rows_of_two_hundred_thousand_columns_stay_within_the_budget():
    code = """
import numpy as np
from scipy import sparse
from mllkm_scale.base.memory import peak_bytes, rss_bytes
from mllkm_scale.data import Dataset
from mllkm_scale.training import train
n, d, k = 20_000, 200_000, 50
rng = np.random.default_rng(0)
columns = np.sort(rng.integers(0, d, (n, k)), axis=1)
X = sparse.csr_array((np.ones(n * k), columns.ravel(), np.arange(n + 1) * k), shape=(n, d))
y = rng.integers(0, 2, n)
before = rss_bytes()
result = train(Dataset.from_arrays(X, y), reduction="REDUCTION", memory_budget="BUDGET", anchors=50, C=0.1, n_jobs=1,
               max_rounds=1, tol=0.9)
print(result.model.reduction.kind, result.model.reduction.n_features, peak_bytes())
"""
    for reduction, budget, most in (("svd:20", "1GB", 1.0e9), ("auto", "1GB", 1.0e9)):
        program = code.replace("REDUCTION", reduction).replace("BUDGET", budget)
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stderr
        kind, features, peak = done.stdout.split()
        assert int(peak) < most, done.stdout
        assert (kind, features) == (("svd", "20") if reduction != "auto" else ("random", "256"))
