"""The budget of learning online: what the plan refuses, what it names works, and a real stream stays within it."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mllkm_scale.base.units import parse_bytes
from mllkm_scale.errors import BudgetError, ParameterError
from mllkm_scale.online.params import OnlineParams, require_online
from mllkm_scale.online.plan import LEAST_SAMPLES, USUAL_SAMPLES, OnlineSizes, plan_online
from mllkm_scale.online.setup import sizes_of_stream
from mllkm_scale.params import resolve

SMALL = OnlineSizes(
    n_features_in=20,
    n_features=20,
    n_classes=2,
    n_gammas=5,
    warm_up=1024,
    componentwise=False,
    map="gaussian",
    max_kernels=500,
    max_samples=None,
)


def sizes(**changed):
    return OnlineSizes(**vars(SMALL) | changed)


some_sizes = st.builds(
    sizes,
    n_features_in=st.integers(1, 3000),
    n_features=st.integers(1, 50),
    n_classes=st.integers(2, 20),
    n_gammas=st.integers(1, 10),
    warm_up=st.integers(1, 5000),
    componentwise=st.booleans(),
    map=st.sampled_from(["gaussian", "exponential", "linear", "squared"]),
    max_kernels=st.integers(1, 5000),
    max_samples=st.none() | st.integers(1, 1_000_000),
)


@settings(max_examples=50)
@given(some_sizes)
@example(sizes(max_samples=2_000_000))  # gigabytes, of which a text tells only tenths
def test_the_budget_that_a_refusal_names_works(wanted):
    with pytest.raises(BudgetError) as refused:
        plan_online(wanted, 100_000_000)
    named = parse_bytes(re.search(r"at least ([\d.]+ \wB)", str(refused.value)).group(1))
    plan = plan_online(wanted, named)
    assert plan.total_bytes == named == plan.as_dict()["total_bytes"]
    assert all(size >= 0 for _, size, _ in plan.rows)
    assert plan.max_kernels == wanted.max_kernels
    if wanted.max_samples is not None:
        assert plan.max_samples == wanted.max_samples
    else:
        assert min(USUAL_SAMPLES, max(LEAST_SAMPLES, wanted.warm_up)) <= plan.max_samples <= USUAL_SAMPLES


def test_what_the_program_holds_counts_within_the_budget():
    wide = sizes(n_features_in=200, n_features=200)
    alone, beside = plan_online(wide, 10**9), plan_online(wide, 10**9, held_bytes=45 * 10**7)
    assert beside.max_samples < alone.max_samples == USUAL_SAMPLES
    with pytest.raises(BudgetError):
        plan_online(wide, 10**9, held_bytes=10**9)


def test_projected_features_are_what_is_kept():
    params, online = resolve(n_components=5, max_kernels=7, gammas=[0.1, 0.2]), OnlineParams(max_samples=9)
    found = sizes_of_stream(100, 3, params, online)
    assert (found.n_features_in, found.n_features, found.n_outputs, found.n_gammas) == (100, 5, 3, 2)
    assert (found.max_kernels, found.max_samples, found.warm_up) == (7, 9, 1024)
    assert sizes_of_stream(100, 2, resolve(n_components=0.9), online).n_features == 100


@pytest.mark.parametrize("name", ["max_samples", "window", "warm_up"])
@pytest.mark.parametrize("value", [0, -3, 2.5, True, "many"])
def test_limits_that_cannot_work_are_named(name, value):
    with pytest.raises(ParameterError, match=f"{name}={value!r}: give a whole number from 1"):
        OnlineParams(**{name: value}).check()


@pytest.mark.parametrize(("name", "value"), [("anchors", 100), ("multi_class", "ovr")])
def test_parameters_that_mean_nothing_to_a_stream_are_refused(name, value):
    with pytest.raises(ParameterError, match=f"{name}={value!r}"):
        require_online(resolve(**{name: value}))


STREAM = """
import json, sys
import numpy as np
from mllkm_scale.online.learner import OnlineLearner
from mllkm_scale.online.params import OnlineParams
from mllkm_scale.params import resolve
from mllkm_scale.base.memory import peak_bytes
budget, samples = sys.argv[1], int(sys.argv[2])
rng, d = np.random.default_rng(0), 300
params = resolve(memory_budget=budget, n_jobs=2, max_kernels=60)
learner = OnlineLearner(params, OnlineParams(warm_up=256, max_samples=samples), classes=range(3))
for _ in range(8):
    y = rng.integers(3, size=512)
    learner.learn(rng.normal(size=(512, d)) + 0.1 * y[:, None], y)
learner.model()
learner.close()
print(json.dumps([peak_bytes(), learner.plan(d, 3).total_bytes, len(learner.started[1].kept), learner.n_seen]))
"""


def test_the_measured_peak_of_a_stream_stays_within_its_plan():
    command = [sys.executable, "-c", STREAM, "500MB", "3000"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    peak, planned, kept, seen = json.loads(done.stdout)
    assert seen == 4096
    assert kept > 2500  # much of what is almost noise has to be kept
    assert peak <= planned
