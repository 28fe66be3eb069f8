"""The outer loop with scans that run beside the next solving: valid bounds in every round, and the same optimum."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from mllkm_scale import Dataset
from mllkm_scale import train as train_with_defaults
from mllkm_scale.errors import InterruptedTraining

train = partial(train_with_defaults, anchors="all")  # the machine whose candidates are all samples
GAMMAS = (0.1, 0.5)
SETTING = {"C": 2.0, "gammas": GAMMAS, "scaling": "none", "local_bias": 0.5, "n_jobs": 1}


@pytest.fixture(scope="module", params=["breast_cancer", "iris"])
def problem(request, small_problem, mkl_reference):
    """Data, signs, the features of all kernels, and the optimum over all of them."""
    X, signs = small_problem(request.param, 80)
    y = signs.argmax(axis=1) if signs.shape[1] > 1 else (signs[:, 0] > 0).astype(int)
    family = {"map": "gaussian", "componentwise": False, "normalize": "trace", "local_bias": 0.5}
    features = mkl_reference.grid_features(X, GAMMAS, **family)
    optimum = mkl_reference.optimum(X, signs, gammas=GAMMAS, C=2.0, **family)
    return X, y, signs, features, optimum


@pytest.mark.parametrize("overlap", ["auto", "always", "never"])
def test_the_bounds_of_every_round_hold_and_the_last_ones_meet(problem, overlap):
    X, y, _, _, optimum = problem
    result = train(Dataset.from_arrays(X, y), overlap=overlap, tol=1e-5, **SETTING)
    assert result.status == "converged"
    assert all(event.dual <= optimum * (1 + 1e-8) <= event.primal * (1 + 2e-8) for event in result.history)
    assert result.model.certificate.dual == pytest.approx(optimum, rel=1e-5)
    assert not result.history[-1].lagged
    assert any(event.lagged for event in result.history) == (overlap == "always")


def primal_of(model, X, signs, C):
    """P of a model, by its coefficients and what it decides."""
    squares = np.sum(model.coef**2, axis=2) + model.local_coef**2 / model.family.local_bias
    norms = np.sqrt(squares.sum(axis=0) / model.kernel_scale)
    outputs = model.decision_function(X).reshape(len(X), -1)
    return 0.5 * norms.sum() ** 2 + C * np.maximum(0.0, 1.0 - signs * outputs).sum()


@pytest.mark.parametrize("limit", [{"max_rounds": 1}, {"max_rounds": 3}, {"time_limit": 1e-9}], ids=str)
def test_the_certificate_of_a_training_cut_short_is_of_its_own_duals(mkl_reference, problem, limit):
    X, y, signs, features, _ = problem
    result = train(Dataset.from_arrays(X, y), overlap="always", tol=1e-6, **limit, **SETTING)
    model = result.model
    ids = [
        int(np.flatnonzero((anchor == X).all(axis=1))[0]) * len(GAMMAS) + GAMMAS.index(gamma)
        for anchor, gamma in zip(model.anchors, model.gammas, strict=True)
    ]
    weights = np.zeros(len(features))
    weights[ids] = model.weights
    dual, _ = mkl_reference.bounds(features, signs, 2.0, result.duals, weights)
    assert model.certificate.primal == pytest.approx(primal_of(model, X, signs, 2.0), rel=1e-9)
    assert model.certificate.dual == pytest.approx(dual, rel=1e-9)


@pytest.mark.parametrize("overlap", ["auto", "always"])
def test_a_training_that_lags_resumes_to_the_same_bits(tmp_path, real_data, overlap):
    X, y = real_data("digits")
    dataset = Dataset.from_arrays(X[:300], y[:300])
    train(dataset, run_dir=tmp_path / "whole", overlap=overlap, n_jobs=1)
    for rounds in (1, 2):
        train(dataset, run_dir=tmp_path / "parts", overlap=overlap, n_jobs=1, resume=rounds > 1, max_rounds=rounds)
    polls = iter(range(10**9))
    with pytest.raises(InterruptedTraining):
        train(
            dataset,
            run_dir=tmp_path / "parts",
            overlap=overlap,
            n_jobs=1,
            resume=True,
            should_stop=lambda: next(polls) == 8,
        )
    train(dataset, run_dir=tmp_path / "parts", overlap=overlap, n_jobs=1, resume=True)
    assert (tmp_path / "parts" / "model.mllkm").read_bytes() == (tmp_path / "whole" / "model.mllkm").read_bytes()


QUICK_FLOPS = 2e7  # of solving, far below those of a scan


def test_scans_lag_where_they_are_the_larger_part(real_data, monkeypatch):
    """Many anchors and few working samples: by arithmetic, not by the clock."""
    X, y = real_data("digits")
    monkeypatch.setattr("mllkm_scale.mkl.inner.inner_flops", lambda *_: QUICK_FLOPS)
    few = train(Dataset.from_arrays(X[:200], y[:200] > 4), anchors="kmeans:5", n_jobs=1)
    many = train(Dataset.from_arrays(X[:200], y[:200] > 4), anchors=np.tile(X, (3, 1)), pricing="full", n_jobs=1)
    assert not any(event.lagged for event in few.history)
    assert any(event.lagged for event in many.history)


@pytest.mark.parametrize("overlap", ["auto", "always", "never"])
def test_pricing_by_shares_proves_the_same_optimum(real_data, overlap, monkeypatch):
    """Many anchors and few samples: rounds scan shares of them, and the last one all."""
    monkeypatch.setattr("mllkm_scale.mkl.state.Settings.n_candidates", lambda self, n_classes: 100)
    monkeypatch.setattr("mllkm_scale.mkl.inner.inner_flops", lambda *_: QUICK_FLOPS)
    X, y = real_data("digits")
    data = Dataset.from_arrays(X[:200], y[:200] > 4)
    setting = {"anchors": np.tile(X, (2, 1)), "tol": 1e-3, "n_jobs": 1, "overlap": overlap}
    shares, full = train(data, **setting), train(data, pricing="full", **setting)
    assert any(event.lagged for event in shares.history)
    assert not shares.history[-1].lagged
    assert shares.status == full.status == "converged"
    assert shares.model.certificate.dual <= full.model.certificate.primal
    assert full.model.certificate.dual <= shares.model.certificate.primal
    assert all(event.dual <= full.model.certificate.primal for event in shares.history)
    proved = [event.dual for event in shares.history]
    assert proved[-1] == max(proved)


def test_a_training_that_prices_by_shares_resumes_to_the_same_bits(tmp_path, real_data, monkeypatch):
    monkeypatch.setattr("mllkm_scale.mkl.state.Settings.n_candidates", lambda self, n_classes: 100)
    X, y = real_data("digits")
    data, setting = Dataset.from_arrays(X[:200], y[:200] > 4), {"anchors": np.tile(X, (2, 1)), "n_jobs": 1}
    train(data, run_dir=tmp_path / "whole", **setting)
    for rounds in (1, 2, None):
        train(data, run_dir=tmp_path / "parts", resume=rounds != 1, max_rounds=rounds, **setting)
    assert (tmp_path / "parts" / "model.mllkm").read_bytes() == (tmp_path / "whole" / "model.mllkm").read_bytes()
