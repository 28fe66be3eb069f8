"""The pages of the documentation, and the folder with data in which they are run."""

from __future__ import annotations

import csv
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer

from mllkm_scale.data import convert
from mllkm_scale.run import training

ROOT = Path(__file__).parents[2]
FROM_CSV = "mllkm convert train.csv train.h5"


@pytest.fixture(scope="session")
def csv_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """data.csv, train.csv, test.csv and new.csv, as docs/index.md describes them."""
    cancer = load_breast_cancer()
    kinds = cancer.target_names[cancer.target]
    order = np.random.default_rng(0).permutation(len(kinds))
    folder = tmp_path_factory.mktemp("pages")
    parts = {"data": order, "train": order[:400], "test": order[400:], "new": order[400:420]}
    for name, rows in parts.items():
        labelled = name != "new"
        with (folder / f"{name}.csv").open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow([*cancer.feature_names, *(["kind"] if labelled else [])])
            for row in rows:
                writer.writerow([*cancer.data[row].tolist(), *([kinds[row]] if labelled else [])])
    return folder


@pytest.fixture
def short_trainings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few epochs, and two settings that compete: a page is about what to write, and not about what is learned."""
    contenders = training.contenders
    monkeypatch.setattr("mllkm_scale.learn.settings._MOST_EPOCHS", 10)
    monkeypatch.setattr(training, "contenders", lambda *given: contenders(*given)[:2])


@pytest.fixture
def working_folder(csv_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Go to a fresh folder with the files that a page of this text counts on."""

    def enter(text: str) -> Path:
        for name in ("data", "train", "test", "new"):
            shutil.copyfile(csv_folder / f"{name}.csv", tmp_path / f"{name}.csv")
            if name != "data" and FROM_CSV not in text:
                label = None if name == "new" else -1
                convert(tmp_path / f"{name}.csv", tmp_path / f"{name}.h5", label_column=label)
        monkeypatch.chdir(tmp_path)
        return tmp_path

    return enter
