"""The plan: arithmetic that adds up, refuses what cannot work, and bounds what a training really takes."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mllkm_scale import Dataset
from mllkm_scale.errors import BudgetError
from mllkm_scale.params import resolve
from mllkm_scale.run.plan import Sizes, make_plan, plan_for
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
    assert plan.inner in ("dense", "features", "tiles")


def test_a_larger_budget_never_leaves_less_for_the_inner_problem():
    problem = Sizes(20_000, 100, 100, 4, 10, 20_000, 5, False, 2)
    inner = [plan_for(problem, budget).inner_bytes for budget in range(10**9, 8 * 10**9, 2 * 10**8)]
    assert inner == sorted(inner)


def test_data_that_does_not_fit_is_prepared_on_disk():
    problem = Sizes(2_000_000, 100, 100, 4, 1, 10_000, 5, False, 2)
    assert not plan_for(problem, 5 * 10**9).in_memory
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


SCRIPT = """
import json, sys
import numpy as np
from sklearn.datasets import load_digits
from mllkm_scale import Dataset, train
X, y = load_digits(return_X_y=True)
X = np.concatenate([X, X[:, ::-1], np.roll(X, 3, axis=1)], axis=1)
result = train(Dataset.from_arrays(X, y), memory_budget=sys.argv[1], scratch_dir=sys.argv[2], tol=0.05)
print(json.dumps([result.status, result.peak_bytes, result.plan.budget_bytes]))
"""


@pytest.mark.parametrize("budget", ["600MB", "1GB"])
def test_the_measured_peak_of_a_training_stays_within_its_budget(tmp_path, budget):
    command = [sys.executable, "-c", SCRIPT, budget, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    status, peak, allowed = json.loads(done.stdout)
    assert status == "converged"
    assert peak <= allowed
    assert list(tmp_path.iterdir()) == []
