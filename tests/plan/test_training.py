"""The plan: arithmetic that adds up, and refuses what cannot work."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mllkm_scale import Dataset
from mllkm_scale.base.units import parse_bytes
from mllkm_scale.data.preparation.quantile_sketch import sketch_bytes
from mllkm_scale.errors import BudgetError, ParameterError
from mllkm_scale.params import resolve
from mllkm_scale.plan.passes import preparing_bytes, scan_bytes
from mllkm_scale.plan.sizes import Sizes, sizes_of
from mllkm_scale.plan.training import make_plan, plan_for

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


@pytest.mark.parametrize(("scaling", "width"), [("standard", 20), ("quantile", 20), ("auto", 40)])
def test_columns_side_by_side_and_quantiles_are_counted(scaling, width):
    data = Dataset.from_arrays(np.zeros((500, 20)), np.arange(500) % 2)
    found = sizes_of(data, resolve(scaling=scaling), 2)
    assert (found.n_features, found.width) == (width, width)
    assert preparing_bytes(found, 2) >= (sketch_bytes(500, 20, 2) if scaling != "standard" else 0)
    assert sizes_of(data, resolve(scaling=scaling, n_components=width), 2).n_features == width
    with pytest.raises(ParameterError, match=f"from 1 to {width}"):
        sizes_of(data, resolve(scaling=scaling, n_components=width + 1), 2)


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

    plan = make_plan(Refuses.from_arrays(X, y), resolve(anchors="all", memory_budget="1GB"))
    assert plan.sizes.n_outputs == 10
    assert json.loads(json.dumps(plan.as_dict()))["total_bytes"] <= 10**9
    assert "inner form" in plan.as_text()


def test_what_the_program_holds_counts_within_the_budget(real_data):
    dataset, params = Dataset.from_arrays(*real_data("digits")), resolve(anchors="all", memory_budget="1GB")
    alone, beside = make_plan(dataset, params), make_plan(dataset, params, held_bytes=10**8)
    assert alone.inner_bytes - beside.inner_bytes == pytest.approx(10**8 / 1.1, abs=1)
    with pytest.raises(BudgetError):
        make_plan(dataset, params, held_bytes=9 * 10**8)
    with pytest.raises(ParameterError, match="held_bytes=-1"):
        make_plan(dataset, params, held_bytes=-1)


def test_many_support_vectors_do_not_raise_the_least_budget_but_are_held_in_a_larger_one():
    problem = Sizes(4_000_000, 100, 100, 4, 1, 10_000, 5, False, 2)
    support_bytes = 4 * 100 * problem.n_rows // 2
    tight, wide = plan_for(problem, 1_700_000_000), plan_for(problem, 10**10)
    assert tight.support_bytes < support_bytes < wide.support_bytes
    assert scan_bytes(tight.sizes, tight.sizes.threads, tight.support_bytes) <= tight.inner_bytes
    assert tight.worker_bytes() < wide.worker_bytes()
