"""How a training with learned kernels is finished: the search for C, and when MKL is left out."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mllkm_scale import Dataset, train
from mllkm_scale.base.executor import ThreadExecutor
from mllkm_scale.base.threads import Threads
from mllkm_scale.learn.settings import RIDGE
from mllkm_scale.mkl.sequential import SequentialMKL
from mllkm_scale.params import resolve
from mllkm_scale.plan import sizes as sizes_module
from mllkm_scale.plan.training import make_plan
from mllkm_scale.run import problem as problem_module
from mllkm_scale.run import training as training_module
from mllkm_scale.run.problem import build_problem
from mllkm_scale.run.session import Resources
from mllkm_scale.run.tuning import choice as module
from mllkm_scale.run.tuning.choice import CS, Choice, balancing_C, learned_margins

errors_of_all = st.lists(st.integers(0, 4), min_size=len(CS), max_size=len(CS))


@given(errors_of_all)
def test_the_search_asks_for_each_c_once_and_ends_in_a_local_minimum(errors):
    asked = []

    def error(C):
        asked.append(C)
        return errors[CS.index(C)]

    found = module._search(error)
    assert sorted(asked) == sorted(found)
    assert len(set(asked)) == len(asked)
    assert set(found) <= set(CS)
    assert all(found[C] == errors[CS.index(C)] for C in found)
    best = CS.index(min(sorted(found), key=found.__getitem__))
    for neighbour in (best - 1, best + 1):
        if 0 <= neighbour < len(CS):
            assert CS[neighbour] in found
            assert errors[neighbour] >= errors[best]


@given(st.integers(0, len(CS) - 1))
def test_the_search_finds_the_minimum_of_errors_that_fall_and_rise(place):
    found = module._search(lambda C: abs(CS.index(C) - place))
    assert min(found, key=found.__getitem__) == CS[place]


def test_a_choice_is_the_same_after_json():
    choice = Choice(10.0, True, "so", (1.0, 10.0), (0.2, 0.1), 0.3)
    assert Choice.from_dict(json.loads(json.dumps(choice.as_dict()))) == choice


@pytest.fixture(autouse=True)
def few_epochs(monkeypatch):
    monkeypatch.setattr("mllkm_scale.learn.settings._MOST_EPOCHS", 25)


@pytest.fixture(scope="module")
def wine(real_data):
    X, y = real_data("wine")
    return Dataset.from_arrays(X[:, :6], y)


ONE_SETTING = {"metric": "diagonal", "ridge": RIDGE, "scaling": "standard"}  # so that none compete


def trained(dataset, tmp_path, **given):
    """A training with few learned kernels, and the choice of its record."""
    settings = ONE_SETTING | {"anchors": "learned:6", "n_jobs": 1, "tol": 0.05} | given
    result = train(dataset, run_dir=tmp_path / "run", **settings)
    return result, json.loads((tmp_path / "run" / "run.json").read_text())["choice"]


@pytest.mark.parametrize("C", [0.7, "auto"])
def test_none_leaves_the_machine_as_learned(wine, tmp_path, C):
    result, choice = trained(wine, tmp_path, finish="none", C=C)
    assert result.status == result.model.certificate.status == "learned"
    assert result.history == ()
    assert not choice["mkl"]
    assert result.model.certificate.params["C"] == choice["C"]
    assert choice["C"] == 0.7 if C == 0.7 else CS[0] <= choice["C"] <= CS[-1]


def test_mkl_weighs_the_kernels_with_the_c_that_is_given(wine, tmp_path, monkeypatch):
    for place in (module, sizes_module):
        monkeypatch.setattr(place, "MOST_MKL_FLOPS", 0)  # is for "auto"
    result, choice = trained(wine, tmp_path, finish="mkl", C=0.7)
    assert result.status == "converged"
    assert len(result.history) > 0
    assert (choice["mkl"], choice["C"], choice["Cs"]) == (True, 0.7, [])
    assert result.model.certificate.params["C"] == 0.7


def test_mkl_chooses_c_by_the_error_on_rows_that_are_held_out(wine, tmp_path):
    result, choice = trained(wine, tmp_path, finish="mkl")
    errors = dict(zip(choice["Cs"], choice["errors"], strict=True))
    assert set(errors) <= set(CS)
    assert choice["C"] == min(errors, key=errors.__getitem__) == result.model.certificate.params["C"]
    assert all(0 <= error <= 0.2 for error in errors.values())
    assert 0 <= choice["learned_error"] <= 0.2
    assert result.status == "converged"


def test_auto_leaves_mkl_out_where_it_is_too_dear(wine, tmp_path, monkeypatch):
    for place in (module, sizes_module):
        monkeypatch.setattr(place, "MOST_MKL_FLOPS", 0)
    result, choice = trained(wine, tmp_path, C=2.0)
    assert result.status == "learned"
    assert "would take too long" in choice["reason"]
    assert choice["C"] == 2.0


@pytest.mark.parametrize(("error", "status"), [(1.0, "learned"), (0.0, "converged")])
def test_auto_takes_the_machine_that_errs_less_on_rows_that_are_held_out(wine, tmp_path, monkeypatch, error, status):
    monkeypatch.setattr(module, "_search", lambda _: {1.0: error})
    result, choice = trained(wine, tmp_path)
    assert result.status == status
    assert choice["mkl"] == (status == "converged")
    assert choice["errors"] == [error]


def test_auto_without_a_local_bias_is_mkl_for_the_learned_machine_has_such(wine, tmp_path, monkeypatch):
    for place in (module, sizes_module):
        monkeypatch.setattr(place, "MOST_MKL_FLOPS", 0)
    monkeypatch.setattr(module, "_search", lambda _: {1.0: 1.0})
    result, choice = trained(wine, tmp_path, local_bias=0.0)
    assert result.status == "converged"
    assert choice["mkl"]
    assert not result.model.local_coef.any()


def test_many_rows_are_judged_by_those_that_the_descent_has_held_out(wine, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "FOLD_ROWS", 50)
    monkeypatch.setattr(problem_module, "FOLD_ROWS", 50)
    monkeypatch.setattr(training_module, "folds_of", lambda *_: pytest.fail("folds are for few rows"))
    result, choice = trained(wine, tmp_path, finish="mkl")
    assert choice["C"] in CS
    held = 18 * np.array(choice["errors"])  # a tenth of each class
    np.testing.assert_allclose(held, held.round(), atol=1e-9)
    epochs = [json.loads(line) for line in (tmp_path / "run" / "learning.jsonl").read_text().splitlines()]
    assert all(0 <= epoch["held_error"] <= 1 for epoch in epochs)
    assert result.duals.shape == (178, 3)


def test_too_few_rows_to_hold_some_out_are_weighed_with_the_c_of_the_learned_machine(tmp_path):
    dataset = Dataset.from_arrays(np.array([[0.0, 0.0], [1.0, 1.0], [2.0, 0.0]]), [0, 1, 2])
    result, choice = trained(dataset, tmp_path, anchors="learned")
    assert "too few rows" in choice["reason"]
    assert CS[0] <= choice["C"] <= CS[-1]
    assert result.model.n_kernels == 1


@pytest.mark.parametrize("scale", [0.5, 1.0])
def test_for_the_balancing_c_no_other_length_of_the_machine_has_a_smaller_p(wine, monkeypatch, scale):
    params = resolve(anchors="learned:6", n_jobs=1, C=1.0, **ONE_SETTING)
    problem = build_problem(wine, params, Resources.of(make_plan(wine, params), Threads()))
    learned = problem.learned
    problem = replace(
        problem, learned=replace(learned, coef=scale * learned.coef, local_coef=scale * learned.local_coef)
    )
    margins = learned_margins(problem, ThreadExecutor())
    monkeypatch.setattr(module, "CS", (1e-9, 1e9))
    C, norm = balancing_C(problem, float(margins[margins < 1.0].sum())), problem.learned.norms().sum()

    def primal(length):
        return 0.5 * (length * norm) ** 2 + C * np.maximum(0.0, 1.0 - length * margins).sum()

    assert primal(1.0) <= min(primal(length) for length in (0.5, 0.9, 0.999, 1.001, 1.1, 2.0))


def test_paths_of_a_trial_begin_where_the_nearest_c_has_ended(wine, monkeypatch):
    warmed = []
    warm = SequentialMKL.warm
    monkeypatch.setattr(SequentialMKL, "warm", lambda *given: warmed.append(given[2]) or warm(*given))
    monkeypatch.setattr(module, "_search", lambda error: {C: error(C) for C in (1.0, 10.0, 0.1)})
    train(wine, anchors="learned:6", n_jobs=1, finish="mkl", max_rounds=1, **ONE_SETTING)
    assert warmed == [1.0, 1.0, 1.0, 1.0, 1.0, 1.0]
