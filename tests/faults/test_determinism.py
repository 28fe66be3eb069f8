"""One seed, the same bits: without a cluster, and with 1, 2 and 4 workers."""

from __future__ import annotations

import h5py
import numpy as np
import pytest

from mllkm_scale import Dataset, MLLKMClassifier, train

pytestmark = pytest.mark.usefixtures("small_chunks")


@pytest.mark.parametrize("workers", [4, 2, 1])
@pytest.mark.parametrize(
    "settings",
    [{"multi_class": "shared"}, {"multi_class": "ovr", "tol": 0.2, "max_rounds": 1}],
    ids=["shared", "ovr"],
)
def test_the_number_of_workers_changes_no_bit(farm, client, data, tmp_path, trained, reference, workers, settings):
    farm.scale(client, workers)
    assert trained(data, tmp_path / "run", client=client, **settings) == reference(**settings)


ONE_SETTING = {"metric": "diagonal", "ridge": 0.1, "scaling": "standard"}  # so that none compete
OPTIONS = [
    {"anchors": "kmeans:50"},
    {"anchors": 60},
    {"anchors": "array"},
    {"n_components": 8},
    {"scaling": "standard+quantile"},
    {"n_components": 0.8, "whiten": True, "overlap": "always"},
    {"n_components": 4, "componentwise": True, "normalize": None},
    {"tol": 5e-4},
    {"max_kernels": 10},
    {"anchors": "learned:10+all", "metric": "diagonal", "ridge": 0.1, "C": 1.0, "finish": "mkl"},
]


@pytest.mark.filterwarnings("ignore:training ended by max_rounds")
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_arrays_under_an_active_client_give_the_bits_of_a_training_without(farm, client, data, tmp_path, options):
    with h5py.File(data) as file:
        X, y = file["X"][:], file["y"][:]
    if options.get("anchors") == "array":
        options = options | {"anchors": X[::5]}
    farm.scale(client, 2)
    machine = MLLKMClassifier(**{"anchors": "all", "tol": 0.05, "max_rounds": 2, "n_jobs": 1} | options)
    machine.fit(X, y).model_.save(tmp_path / "alone.mllkm")
    duals = machine.duals_
    with client.as_current():
        machine.fit(X, y).model_.save(tmp_path / "cluster.mllkm")
    assert machine.history_[0]["n_workers"] == 2
    assert np.array_equal(machine.duals_, duals)
    assert (tmp_path / "cluster.mllkm").read_bytes() == (tmp_path / "alone.mllkm").read_bytes()


@pytest.mark.filterwarnings("ignore:training ended by max_rounds")
@pytest.mark.parametrize(
    ("finish", "fold_rows"), [("mkl", 20_000), ("mkl", 50), ("none", 50)], ids=["folds", "held-out", "none"]
)
def test_learned_kernels_are_finished_with_a_worker_as_without(
    farm, client, data, tmp_path, trained, monkeypatch, finish, fold_rows
):
    monkeypatch.setattr("mllkm_scale.learn.settings._MOST_EPOCHS", 10)
    for module in ("tuning.choice", "problem"):
        monkeypatch.setattr(f"mllkm_scale.run.{module}.FOLD_ROWS", fold_rows)
    farm.scale(client, 1)
    settings = {"anchors": "learned:10", "finish": finish, "max_rounds": 1, "n_components": 8} | ONE_SETTING
    alone = trained(data, tmp_path / "alone", **settings)
    assert trained(data, tmp_path / "run", client=client, **settings) == alone


def test_a_training_may_change_between_threads_and_workers_at_every_resume(farm, client, data, tmp_path, reference):
    farm.scale(client, 2)
    run = tmp_path / "run"
    settings = {"anchors": "all", "tol": 0.02, "overlap": "always", "n_jobs": 1, "memory_budget": "1GB"}
    for rounds, doers in enumerate([client, None, client, None, client], start=1):
        train(
            Dataset.open(data),
            client=doers,
            run_dir=run,
            resume=rounds > 1,
            **settings | {"max_rounds": rounds or None},
        )
    train(Dataset.open(data), run_dir=run, resume=True, **settings)
    assert (run / "model.mllkm").read_bytes() == reference()
