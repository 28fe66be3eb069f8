"""The plan bounds what a training really takes: its peak is measured in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest

from mllkm_scale.plan.training import BASE_BYTES

TINY = """
import json, sys
import h5py
import numpy as np
from mllkm_scale import Dataset, train
with h5py.File(sys.argv[1], "w") as file:
    file["X"], file["y"] = np.random.default_rng(0).normal(size=(50, 4)), np.arange(50) % 2
with Dataset.open(sys.argv[1]) as dataset:
    result = train(dataset, anchors="all", componentwise=sys.argv[2] == "component-wise")
print(json.dumps([result.peak_bytes, sorted({name.partition(".")[0] for name in sys.modules})]))
"""


WIDE = """
import json, sys
import h5py
import numpy as np
from mllkm_scale import Dataset, train
with h5py.File(sys.argv[1], "w") as file:
    file["X"] = np.random.default_rng(0).normal(size=(5, 200_000)).astype(np.float32)
    file["y"] = np.arange(5) % 2
with Dataset.open(sys.argv[1]) as dataset:
    result = train(dataset, n_jobs=2, memory_budget="560MB", run_dir=sys.argv[2], report=False)
print(json.dumps(result.peak_bytes))
"""


def test_few_rows_of_many_features_keep_to_the_least_budget_that_they_fit(tmp_path):
    command = [sys.executable, "-c", WIDE, str(tmp_path / "wide.h5"), str(tmp_path / "run")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert json.loads(done.stdout) <= 560_000_000


@pytest.mark.parametrize("family", ["global", "component-wise"])
def test_a_training_from_hdf5_loads_no_more_than_the_plan_counts(tmp_path, family):
    command = [sys.executable, "-c", TINY, str(tmp_path / "tiny.h5"), family]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    peak, modules = json.loads(done.stdout)
    assert not {"distributed", "pandas", "rich", "sklearn", "zarr"} & set(modules)
    assert peak <= BASE_BYTES


SCRIPT = """
import json, sys
import numpy as np
from mllkm_scale import Dataset, train
budget, folder, source = sys.argv[1:]
with np.load(source) as arrays:
    dataset = Dataset.from_arrays(arrays["X"], arrays["y"])
result = train(dataset, anchors="all", memory_budget=budget, scratch_dir=folder, tol=0.05)
print(json.dumps([result.status, result.peak_bytes, result.plan.budget_bytes]))
"""

ESTIMATOR = """
import json, sys
import numpy as np
from mllkm_scale import MLLKMClassifier
budget, folder, source = sys.argv[1:]
with np.load(source) as arrays:
    X, y = arrays["X"], arrays["y"]
machine = MLLKMClassifier(anchors="all", memory_budget=budget, scratch_dir=folder, tol=0.05).fit(X, y)
print(json.dumps([machine.status_, machine.peak_bytes_, machine.plan_.budget_bytes]))
"""


@pytest.mark.parametrize(
    ("script", "budget", "rows"),
    [
        (SCRIPT, "380MB", 600),
        (ESTIMATOR, "550MB", 600),
        # The whole data take more than ten seconds each.
        pytest.param(SCRIPT, "430MB", 1797, marks=pytest.mark.slow),
        pytest.param(SCRIPT, "600MB", 1797, marks=pytest.mark.slow),
        pytest.param(SCRIPT, "1GB", 1797, marks=pytest.mark.slow),
        pytest.param(ESTIMATOR, "590MB", 1797, marks=pytest.mark.slow),
        pytest.param(ESTIMATOR, "1GB", 1797, marks=pytest.mark.slow),
    ],
    ids=lambda value: "train" if value == SCRIPT else "estimator" if value == ESTIMATOR else str(value),
)
def test_the_measured_peak_of_a_training_stays_within_its_budget(tmp_path, real_data, script, budget, rows):
    X, y = (array[:rows] for array in real_data("digits"))
    X = np.concatenate([X, X[:, ::-1], np.roll(X, 3, axis=1)], axis=1)
    np.savez(tmp_path / "train.npz", X=X, y=y)
    command = [sys.executable, "-c", script, budget, str(tmp_path / "scratch"), str(tmp_path / "train.npz")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    status, peak, allowed = json.loads(done.stdout)
    assert status == "converged"
    assert peak <= allowed
    assert list((tmp_path / "scratch").iterdir()) == []


LARGE = """
import json, sys
import h5py
import numpy as np
from mllkm_scale import Dataset, train
path, folder, componentwise = sys.argv[1], sys.argv[2], sys.argv[3] == "component-wise"
n, d, step = 270_000, 320, 10_000
rng = np.random.default_rng(0)
with h5py.File(path, "w") as file:
    X = file.create_dataset("X", (n, d), np.float64)
    file["y"] = y = rng.integers(2, size=n)
    for start in range(0, n, step):
        X[start : start + step] = rng.normal(size=(step, d)) + 0.1 * y[start : start + step, None]
with Dataset.open(path) as dataset:
    size = dataset.n_rows * dataset.n_features * 8
    result = train(
        dataset, memory_budget="640MB", scratch_dir=folder, anchors=40, max_rounds=2, tol=0.05,
        componentwise=componentwise,
    )
print(json.dumps([size, result.peak_bytes, result.plan.budget_bytes, result.plan.in_memory]))
"""


@pytest.mark.slow
@pytest.mark.parametrize("kernels", ["global", "component-wise"])
def test_data_larger_than_the_budget_are_trained_on_within_it(tmp_path, kernels):
    command = [sys.executable, "-c", LARGE, str(tmp_path / "train.h5"), str(tmp_path / "scratch"), kernels]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, done.stderr
    size, peak, allowed, in_memory = json.loads(done.stdout)
    assert not in_memory
    assert peak <= allowed < size
    assert list((tmp_path / "scratch").iterdir()) == []
