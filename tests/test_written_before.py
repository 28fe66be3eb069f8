"""Files that an earlier version has written: models predict as they did, run folders are read, checkpoints refused.

Version 0.1.0 wrote the folder `written_before` from scikit-learn's iris, with the parameters that the run.json files
hold. NAME.npy holds the decision values of NAME.mllkm. The run in `run` was interrupted after its first round.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from mllkm_scale import Dataset, load_model, train
from mllkm_scale.errors import CheckpointError
from mllkm_scale.report import write_report

BEFORE = Path(__file__).parent / "written_before"


@pytest.mark.parametrize("name", ["samples", "component", "learned"])
def test_a_model_of_an_earlier_version_predicts_as_it_did(real_data, name):
    X, y = real_data("iris")
    model = load_model(BEFORE / f"{name}.mllkm")
    # Last bits differ between processors.
    np.testing.assert_allclose(model.decision_function(X), np.load(BEFORE / f"{name}.npy"), rtol=1e-11, atol=1e-11)
    assert np.mean(model.predict(X) == y) > 0.9


def test_the_folder_of_an_earlier_run_is_reported_on(tmp_path):
    shutil.copytree(BEFORE / "done", tmp_path / "done")
    page = write_report(tmp_path / "done")
    assert "iris.h5:X" in Path(page).read_text()


def test_an_earlier_checkpoint_is_refused_with_a_remedy_and_stays(tmp_path):
    shutil.copytree(BEFORE / "run", tmp_path / "run")
    before = (tmp_path / "run" / "checkpoint.npz").read_bytes()
    asked = {"anchors": "all", "C": 10.0, "tol": 1e-4, "n_jobs": 1, "random_state": 0, "memory_budget": "1GB"}
    shutil.copy(BEFORE / "iris.h5", tmp_path / "iris.h5")
    refused = r"an array 'machine0_in_play', which this version does not know: .* or start again with --overwrite"
    with Dataset.open(tmp_path / "iris.h5") as dataset, pytest.raises(CheckpointError, match=refused):
        train(dataset, run_dir=tmp_path / "run", resume=True, **asked)
    assert (tmp_path / "run" / "checkpoint.npz").read_bytes() == before
