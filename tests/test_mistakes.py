"""Mistakes of new users: each is told what is wrong, and what to do, in Python and on the command line."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from mllkm_scale import Dataset, MLLKMClassifier, load_model, train
from mllkm_scale.cli.app import cli
from mllkm_scale.errors import MLLKMError
from mllkm_scale.model import evaluate


@pytest.fixture(scope="module")
def have(tmp_path_factory: pytest.TempPathFactory, real_data: Any) -> Iterator[SimpleNamespace]:
    """What a new user has: a table, its file, and a machine; the folder is the current one."""
    folder = tmp_path_factory.mktemp("mistakes")
    X, y = real_data("iris")
    table = pd.DataFrame(X, columns=["length", "width", "petal length", "petal width"])
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        table.assign(kind=y).to_csv("iris.csv", index=False)
        table.drop(columns="width").to_csv("narrow.csv", index=False)
        for words in (["convert", "iris.csv", "iris.h5"], ["train", "iris.h5", "--out", "run", "--anchors", "20"]):
            assert CliRunner().invoke(cli, [*words]).exit_code == 0
        yield SimpleNamespace(X=X, y=y, table=table, fitted=machine().fit(X, y), named=machine().fit(table, y))


def machine(**parameters: Any) -> MLLKMClassifier:
    return MLLKMClassifier(**{"anchors": 20, "n_jobs": 1} | parameters)


def with_nan(X: np.ndarray) -> np.ndarray:
    return np.where(np.arange(X.size).reshape(X.shape) == 100, np.nan, X)


PYTHON: dict[str, tuple[Callable[[SimpleNamespace], Any], str]] = {
    "predicting before fitting": (lambda have: machine().predict(have.X), "not fitted yet. Call 'fit'"),
    "labels of one class": (
        lambda have: machine().fit(have.X[:50], have.y[:50]),
        "y has one class, 0: training needs at least two classes",
    ),
    "a measured number as label": (
        lambda have: machine().fit(have.X, have.X[:, 0] + np.arange(150) / 7),
        "Unknown label type: continuous",
    ),
    "one-hot labels": (lambda have: machine().fit(have.X, np.eye(3)[have.y]), "y should be a 1d array"),
    "labels that are too few": (
        lambda have: machine().fit(have.X, have.y[:-1]),
        r"inconsistent numbers of samples: \[150, 149\]",
    ),
    "missing values in an array": (
        lambda have: machine().fit(with_nan(have.X), have.y),
        r"X has NaN at row 25, column 0 \(0-based\): remove or replace it, or give a DataFrame",
    ),
    "text in an array": (
        lambda have: machine().fit(np.array([["a", "b"]] * 10), [0, 1] * 5),
        r"X has text \(.*'a'.*\): name its columns with categories=\[...\], or give a DataFrame",
    ),
    "one row that is no matrix": (lambda have: have.fitted.predict(have.X[0]), r"array.reshape\(1, -1\)"),
    "fewer columns than in training": (
        lambda have: have.fitted.predict(have.X[:, :3]),
        "X has 3 features, but MLLKMClassifier is expecting 4",
    ),
    "a column by another name": (
        lambda have: have.named.model_.predict(have.table.rename(columns={"width": "Width"})),
        r"X lacks 1 of the 4 features of the model: 'width' \(is it 'Width'\?\)",
    ),
    "a map that is not there": (
        lambda have: machine(map="rbf").fit(have.X, have.y),
        "map='rbf' is not known: choose one of exponential, gaussian, linear, squared",
    ),
    "a number as text": (lambda have: machine(C="1").fit(have.X, have.y), "C='1': give a positive number"),
    "more components than features": (
        lambda have: machine(n_components=10).fit(have.X, have.y),
        "n_components=10: give a whole number from 1 to 4, or a share below 1",
    ),
    "a budget in other words": (
        lambda have: machine(memory_budget="2 gigs").fit(have.X, have.y),
        "'2 gigs' is not a byte size: write it as '2GB'",
    ),
    "a budget that is too small": (
        lambda have: machine(memory_budget="1MB").fit(have.X, have.y),
        "too small for 150 x 4 samples: at least .* is needed",
    ),
    "an array in the place of a data set": (
        lambda have: train(have.X),
        r"no training on a ndarray: give a Dataset, such as Dataset.open\('train.h5'\) or Dataset.from_arrays",
    ),
    "the path of a file in the place of a data set": (
        lambda have: train("iris.h5"),
        "training on a str: give a Dataset",
    ),
    "a CSV file as a data set": (
        lambda have: Dataset.open("iris.csv"),
        r"iris.csv is not an HDF5 file: convert it first: mllkm convert iris.csv iris.h5",
    ),
    "a shape function of global kernels": (
        lambda have: have.fitted.model_.shape_function(0, [0.0, 1.0]),
        "no additive model: train with componentwise=True",
    ),
    "labels that the model does not know": (
        lambda have: evaluate(have.fitted.model_, Dataset.from_arrays(have.X, have.y + 1)),
        r"y has the label 3 at row 100 \(0-based\), which the model does not know: its classes are 0, 1, 2",
    ),
    "partial_fit without all classes": (
        lambda have: MLLKMClassifier().partial_fit(have.X, have.y),
        "classes=None: give all possible labels in the first call",
    ),
    "a file that is no model": (
        lambda have: load_model("iris.csv"),
        "no file of kind 'mllkm-model'.*name another file",
    ),
    "several rows to explain": (lambda have: have.fitted.explain(have.X), r"x has 150 rows: explain one at a time"),
}


@pytest.mark.parametrize("mistake", PYTHON)
def test_python_says_what_to_do(have: SimpleNamespace, mistake: str) -> None:
    make, message = PYTHON[mistake]
    with pytest.raises((ValueError, TypeError, MLLKMError), match=message):
        make(have)


COMMANDS = {
    "train nothing.h5 --out new": r"nothing.h5 does not exist: check the path, or make it first: mllkm convert",
    "train iris.h5": "Missing option '--out'",
    "train iris.h5 --out run": r"run already holds model.mllkm .*: continue that training with --resume",
    "train iris.h5 --out new --resume": "new has nothing to resume: train without --resume",
    "train iris.h5 --out new --map rbf": "'rbf' is not one of 'exponential', 'gaussian', 'linear', 'squared'",
    "train iris.h5 --out new --kernels 10": "No such option '--kernels'.*'--max-kernels'",
    "train iris.h5 --out new --memory 2GBB": "'2GBB' is not a byte size: write it as '2GB'",
    "train iris.h5 --out new --y labels": "iris.h5 has no data set 'labels': it has X, .*; name the one to use",
    "predict run iris.csv": "Missing option '--out'",
    "predict run iris.csv --out labels.txt": "labels.txt is to be an HDF5 or CSV file: name it labels.h5 or labels.csv",
    "predict iris.h5 iris.csv --out labels.csv": "no file of kind 'mllkm-model'.*name another file",
    "predict run narrow.csv --out labels.csv": "narrow.csv lacks 1 of the 4 features of the model: 'width'",
    "convert iris.csv iris.h5": "iris.h5 exists already: choose another name, or replace it with --overwrite",
    "convert nothing.csv new.h5": "nothing.csv does not exist: check the path",
    "explain run iris.csv --rows 500": r"iris.csv ends before row 500 \(0-based\)",
    "report iris.csv": "iris.csv is a file: name the folder of a run, which mllkm train --out has made",
    "fetch mnits": "'mnits' is not in the catalogue: did you mean mnist",
    "trian iris.h5": "No such command 'trian'. Did you mean 'train'",
}


@pytest.mark.parametrize("words", COMMANDS)
def test_the_command_line_says_what_to_do(have: SimpleNamespace, words: str) -> None:
    result = CliRunner().invoke(cli, words.split())
    assert result.exit_code not in (0, 1)
    (line,) = [line for line in result.stderr.splitlines() if line.startswith("mllkm: error: ")]
    assert re.search(COMMANDS[words], line), line
