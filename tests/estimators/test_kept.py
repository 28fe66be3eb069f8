"""`fit` in a folder: Ctrl-C leaves a usable model, and a warm start goes on with the same bits."""

from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from sklearn.datasets import load_digits

from mllkm_scale import MLLKMClassifier, Model
from mllkm_scale.cli import cli
from mllkm_scale.errors import CheckpointError, ParameterError

pytestmark = pytest.mark.filterwarnings("ignore:training ended by max_rounds")
SETTINGS = {"anchors": "all", "C": 2.0, "tol": 1e-6, "max_rounds": 5, "n_jobs": 1}
SCRIPT = """
import json, sys
from sklearn.datasets import load_digits
from mllkm_scale import MLLKMClassifier

X, y = load_digits(return_X_y=True)
machine = MLLKMClassifier(run_dir=sys.argv[1], **json.loads(sys.argv[2]))
try:
    machine.fit(X[:300], y[:300])
except KeyboardInterrupt as error:
    print(json.dumps([str(error), machine.status_, machine.gap_, machine.score(X[300:], y[300:])]))
"""


@pytest.fixture
def digits() -> tuple[np.ndarray, np.ndarray]:
    X, y = load_digits(return_X_y=True)
    return X[:300], y[:300]


def interrupted(run: Path) -> list[object]:
    """What a process says whose `fit` is interrupted after its first round."""
    command = [sys.executable, "-c", SCRIPT, str(run), json.dumps(SETTINGS)]
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1", "DASK_MLLKM__REPORT": "false"}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        deadline = time.monotonic() + 120
        while not (run / "checkpoint.npz").exists():
            assert process.poll() is None, process.stderr
            assert time.monotonic() < deadline
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        said, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    found: list[object] = json.loads(said)
    return found


def test_ctrl_c_keeps_a_usable_model_and_a_warm_start_goes_on_with_the_same_bits(tmp_path, digits):
    run = tmp_path / "run"
    said, status, gap, score = interrupted(run)
    assert "the checkpoint of round" in said
    assert status == "interrupted"
    assert gap > SETTINGS["tol"]
    assert score > 0.5

    model = Model.load(run / "model.mllkm")
    assert (model.certificate.status, model.certificate.gap) == ("interrupted", gap)
    np.savetxt(tmp_path / "rows.csv", digits[0][:3], delimiter=",")
    out = str(tmp_path / "labels.csv")
    for command in (["inspect", str(run)], ["predict", str(run), str(tmp_path / "rows.csv"), "--out", out]):
        result = CliRunner().invoke(cli, command)
        assert result.exit_code == 0, result.output
        assert "the training was interrupted" in result.output
    assert "interrupted" in CliRunner().invoke(cli, ["inspect", str(run)]).stdout

    with pytest.raises(ParameterError, match="already holds"):
        MLLKMClassifier(run_dir=run, **SETTINGS).fit(*digits)
    resumed = MLLKMClassifier(run_dir=run, warm_start=True, **SETTINGS).fit(*digits)
    whole = MLLKMClassifier(**SETTINGS).fit(*digits)
    assert resumed.status_ == whole.status_ == "max_rounds"
    assert np.array_equal(resumed.model_.coef, whole.model_.coef)
    assert Model.load(run / "model.mllkm").certificate.status == "max_rounds"


def test_a_warm_start_without_a_folder_goes_on_from_the_last_fit(digits):
    few = SETTINGS | {"max_rounds": 2}
    machine = MLLKMClassifier(warm_start=True, **few).fit(*digits)
    assert machine.n_iter_ == 2
    machine.set_params(max_rounds=5).fit(*digits)
    assert machine.n_iter_ == 5
    assert np.array_equal(machine.model_.coef, MLLKMClassifier(**SETTINGS).fit(*digits).model_.coef)
    other = machine.set_params(C=1.0).fit(*digits)  # another problem: from the beginning
    assert np.array_equal(other.model_.coef, MLLKMClassifier(**SETTINGS | {"C": 1.0}).fit(*digits).model_.coef)
    folder = Path(machine._own_folder)
    assert np.array_equal(pickle.loads(pickle.dumps(machine)).predict(digits[0]), machine.predict(digits[0]))
    assert folder.exists()
    del machine, other
    assert not folder.exists()


def test_a_folder_of_another_problem_is_refused(tmp_path, digits):
    settings = SETTINGS | {"max_rounds": 1}
    MLLKMClassifier(run_dir=tmp_path / "run", **settings).fit(*digits)
    with pytest.raises(CheckpointError):
        MLLKMClassifier(run_dir=tmp_path / "run", warm_start=True, **settings | {"C": 1.0}).fit(*digits)


def test_a_run_without_a_model_says_how_to_go_on(tmp_path, digits):
    MLLKMClassifier(run_dir=tmp_path / "run", **SETTINGS | {"max_rounds": 1}).fit(*digits)
    (tmp_path / "run" / "model.mllkm").unlink()  # as a killed process leaves it
    result = CliRunner().invoke(cli, ["inspect", str(tmp_path / "run")])
    assert "has no model yet: continue it" in result.output
