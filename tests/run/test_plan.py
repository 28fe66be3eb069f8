"""The plan: arithmetic that adds up, refuses what cannot work, and bounds what a training really takes."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mllkm_scale import Dataset
from mllkm_scale.errors import BudgetError, ParameterError
from mllkm_scale.params import resolve
from mllkm_scale.run.plan import BASE_BYTES, Sizes, make_plan, plan_for
from mllkm_scale.units import parse_bytes

sizes = st.builds(
    Sizes,
    n_rows=st.integers(2, 10**6),
    n_features_in=st.integers(1, 2000),
    n_features=st.integers(1, 500),
    itemsize=st.sampled_from([4, 8]),
    n_outputs=st.integers(1, 20),
    n_anchors=st.integers(1, 10**6),
    n_gammas=st.integers(1, 10),
    componentwise=st.booleans(),
    threads=st.integers(1, 8),
)


@given(sizes)
@settings(deadline=None, derandomize=True, max_examples=200)
def test_a_refused_budget_names_the_least_one_and_that_one_works(problem):
    with pytest.raises(BudgetError) as error:
        plan_for(problem, 10**6)
    least = parse_bytes(str(error.value).split("at least ")[1].split(" is needed")[0].replace(" ", ""))
    plan = plan_for(problem, int(least * 1.06))  # the message rounds to two digits
    assert plan.total_bytes <= plan.budget_bytes


@given(sizes, st.integers(10**9, 10**13))
@settings(deadline=None, derandomize=True, max_examples=200)
def test_the_rows_add_up_to_the_budget_and_never_exceed_it(problem, budget):
    try:
        plan = plan_for(problem, budget)
    except BudgetError:
        return
    assert all(size >= 0 for _, size, _ in plan.rows)
    assert plan.total_bytes <= budget
    assert plan.inner_bytes > 0
    assert plan.inner in ("dense", "lean", "features", "tiles")


def test_a_larger_budget_never_leaves_less_for_the_inner_problem():
    problem = Sizes(20_000, 100, 100, 4, 10, 20_000, 5, False, 2)
    inner = [plan_for(problem, budget).inner_bytes for budget in range(10**9, 8 * 10**9, 2 * 10**8)]
    assert inner == sorted(inner)


def test_data_that_does_not_fit_is_prepared_on_disk():
    problem = Sizes(2_000_000, 100, 100, 4, 1, 10_000, 5, False, 2)
    assert not plan_for(problem, 2 * 10**9).in_memory
    assert plan_for(problem, 12 * 10**9).in_memory


def test_the_plan_reads_nothing_but_the_labels(real_data):
    X, y = real_data("digits")

    class Refuses(Dataset):
        def _read(self, start, stop):
            raise AssertionError("the plan read samples")

    plan = make_plan(Refuses.from_arrays(X, y), resolve(memory_budget="1GB"))
    assert plan.sizes.n_outputs == 10
    assert json.loads(json.dumps(plan.as_dict()))["total_bytes"] <= 10**9
    assert "inner form" in plan.as_text()


def test_what_the_program_holds_counts_within_the_budget(real_data):
    dataset, params = Dataset.from_arrays(*real_data("digits")), resolve(memory_budget="1GB")
    alone, beside = make_plan(dataset, params), make_plan(dataset, params, held_bytes=10**8)
    assert alone.inner_bytes - beside.inner_bytes == pytest.approx(10**8 / 1.1, abs=1)
    with pytest.raises(BudgetError):
        make_plan(dataset, params, held_bytes=9 * 10**8)
    with pytest.raises(ParameterError, match="held_bytes=-1"):
        make_plan(dataset, params, held_bytes=-1)


def test_the_memory_of_the_passes_does_not_grow_with_candidates_and_classes_and_features():
    few, many = (plan_for(Sizes(10_000, 784, 784, 4, K, 10_000, 5, False, 2), 10**10) for K in (2, 20))
    assert scan_bytes(many) < 2 * scan_bytes(few)


def scan_bytes(plan):
    note = next(note for what, _, note in plan.rows if what == "inner problem and scan, in turn")
    return parse_bytes(note.split("scan ")[1].replace(" ", ""))


TINY = """
import json, sys
import h5py
import numpy as np
from mllkm_scale import Dataset, train
with h5py.File(sys.argv[1], "w") as file:
    file["X"], file["y"] = np.random.default_rng(0).normal(size=(50, 4)), np.arange(50) % 2
with Dataset.open(sys.argv[1]) as dataset:
    result = train(dataset, componentwise=sys.argv[2] == "component-wise")
print(json.dumps([result.peak_bytes, sorted({name.partition(".")[0] for name in sys.modules})]))
"""


@pytest.mark.parametrize("family", ["global", "component-wise"])
def test_a_training_from_hdf5_loads_no_more_than_the_plan_counts(tmp_path, family):
    command = [sys.executable, "-c", TINY, str(tmp_path / "tiny.h5"), family]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    peak, modules = json.loads(done.stdout)
    assert not {"dask", "distributed", "pandas", "rich", "sklearn", "zarr"} & set(modules)
    assert peak <= BASE_BYTES


SCRIPT = """
import json, sys
import numpy as np
from mllkm_scale import Dataset, train
budget, folder, source = sys.argv[1:]
with np.load(source) as arrays:
    dataset = Dataset.from_arrays(arrays["X"], arrays["y"])
result = train(dataset, memory_budget=budget, scratch_dir=folder, tol=0.05)
print(json.dumps([result.status, result.peak_bytes, result.plan.budget_bytes]))
"""

ESTIMATOR = """
import json, sys
import numpy as np
from mllkm_scale import MLLKMClassifier
budget, folder, source = sys.argv[1:]
with np.load(source) as arrays:
    X, y = arrays["X"], arrays["y"]
machine = MLLKMClassifier(memory_budget=budget, scratch_dir=folder, tol=0.05).fit(X, y)
print(json.dumps([machine.status_, machine.peak_bytes_, machine.plan_.budget_bytes]))
"""


@pytest.mark.parametrize(
    ("script", "budget"),
    [(SCRIPT, "400MB"), (SCRIPT, "600MB"), (SCRIPT, "1GB"), (ESTIMATOR, "510MB"), (ESTIMATOR, "1GB")],
    ids=["400MB", "600MB", "1GB", "estimator, 510MB", "estimator, 1GB"],
)
def test_the_measured_peak_of_a_training_stays_within_its_budget(tmp_path, real_data, script, budget):
    X, y = real_data("digits")
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
path, folder = sys.argv[1:]
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
        dataset, memory_budget="620MB", scratch_dir=folder, anchors=40, max_rounds=2, tol=0.05
    )
print(json.dumps([size, result.peak_bytes, result.plan.budget_bytes, result.plan.in_memory]))
"""


@pytest.mark.slow
def test_data_larger_than_the_budget_are_trained_on_within_it(tmp_path):
    command = [sys.executable, "-c", LARGE, str(tmp_path / "train.h5"), str(tmp_path / "scratch")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, done.stderr
    size, peak, allowed, in_memory = json.loads(done.stdout)
    assert not in_memory
    assert peak <= allowed < size
    assert list((tmp_path / "scratch").iterdir()) == []


def test_many_support_vectors_do_not_raise_the_least_budget_but_are_held_in_a_larger_one():
    problem = Sizes(4_000_000, 100, 100, 4, 1, 10_000, 5, False, 2)
    support_bytes = 4 * 100 * problem.n_rows // 2
    tight, wide = plan_for(problem, 1_500_000_000), plan_for(problem, 10**10)
    assert tight.support_bytes < support_bytes < wide.support_bytes
    assert scan_bytes(tight) <= tight.inner_bytes
    assert tight.worker_bytes() < wide.worker_bytes()
