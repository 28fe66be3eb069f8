"""Workers predict as this process does: columns by name, labels, scores and probabilities."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
from distributed import Client

from mllkm_scale import MLLKMClassifier
from mllkm_scale.prediction import predict_file

NAMES = ("a", "b", "c")


def test_workers_match_columns_by_name_and_give_probabilities(local_client: Client, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3000, 3))
    y = (X[:, 0] + 0.3 * rng.normal(size=3000) > 0).astype(int)
    model = replace(MLLKMClassifier(anchors="all", tol=0.3, n_jobs=1).fit(X[:60], y[:60]).model_, feature_names=NAMES)
    with h5py.File(tmp_path / "turned.h5", "w") as file:
        file["X"], file["feature_names"] = X[:, [2, 0, 1]], ["c", "a", "b"]
    found = {}
    for name, client in (("here", None), ("there", local_client)):
        summary = predict_file(
            model, tmp_path / "turned.h5", tmp_path / f"{name}.h5", client=client, probabilities=True
        )
        assert summary.by_name
        with h5py.File(tmp_path / f"{name}.h5") as file:
            found[name] = file["prediction"][:], file["probabilities"][:]
    np.testing.assert_array_equal(found["here"][0], found["there"][0])
    np.testing.assert_array_equal(found["here"][1], found["there"][1])
    np.testing.assert_array_equal(found["there"][1], model.predict_proba(X))
    np.testing.assert_array_equal(found["there"][0], model.predict(X))
