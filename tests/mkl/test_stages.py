"""Training in stages: valid bounds in every round, the optimum of all samples at the end, and none for clean data."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mllkm_scale import Dataset, train
from mllkm_scale.mkl.sequential import SequentialMKL
from mllkm_scale.mkl.stages import Stages

GAMMAS = (0.1, 0.5)
SETTING = {"C": 1.0, "gammas": GAMMAS, "scaling": "none", "local_bias": 0.5, "n_jobs": 1}
FAMILY = {"map": "gaussian", "componentwise": False, "normalize": "trace", "local_bias": 0.5}


@given(st.integers(1, 50_000), st.integers(0, 3))
def test_each_stage_has_four_times_the_samples_of_the_one_before_and_the_last_one_all(n, seed):
    stages = Stages(n, seed)
    assert stages.sizes[-1] == n
    assert stages.first == n or 3000 <= stages.first < 12_000
    masks = [stages.mask(count) for count in stages.sizes]
    assert [int(mask.sum()) for mask in masks] == stages.sizes
    for few, more in pairwise(masks):
        assert not (few & ~more).any()
    for count, following in pairwise(stages.sizes):
        assert stages.after(count) == following
        assert count == following // 4
        assert stages.box(count, 2.0) * count == pytest.approx(2.0 * n)


@pytest.fixture
def stages_seen(monkeypatch):
    """Samples in play in each round, of trainings whose first stage may be of 40 samples."""
    monkeypatch.setattr("mllkm_scale.mkl.stages._LEAST", 40)
    seen, plain = [], SequentialMKL.round

    def watched(self, state):
        seen.append(state.stage)
        return plain(self, state)

    monkeypatch.setattr(SequentialMKL, "round", watched)
    return seen


@pytest.fixture(scope="module")
def noisy():
    """A third of the labels is wrong."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(160, 2))
    return X, ((X[:, 0] > 0) ^ (rng.random(160) < 0.33)).astype(int)


@pytest.mark.parametrize("overlap", ["always", "never"])
def test_noisy_data_come_in_stages_to_the_optimum_of_all_of_them(noisy, stages_seen, mkl_reference, overlap):
    X, y = noisy
    optimum = mkl_reference.optimum(X, np.where(y, 1.0, -1.0)[:, None], gammas=GAMMAS, C=1.0, **FAMILY)
    result = train(Dataset.from_arrays(X, y), overlap=overlap, tol=1e-4, **SETTING)
    assert sorted(set(stages_seen)) == [40, 160]
    assert stages_seen == sorted(stages_seen)
    assert result.status == "converged"
    assert all(event.dual <= optimum * (1 + 1e-8) <= event.primal * (1 + 2e-8) for event in result.history)
    assert result.model.certificate.dual == pytest.approx(optimum, rel=1e-4)


def test_the_certificate_of_an_early_stage_is_one_over_all_samples(noisy, stages_seen, mkl_reference):
    X, y = noisy
    result = train(Dataset.from_arrays(X, y), tol=1e-4, max_rounds=1, **SETTING)
    assert set(stages_seen) == {40}
    assert result.duals.max() <= 1.0
    model, signs = result.model, np.where(y, 1.0, -1.0)[:, None]
    features = mkl_reference.grid_features(X, GAMMAS, **FAMILY)
    forms = [float(np.sum((F.T @ (result.duals * signs)) ** 2)) for F in features]
    assert model.certificate.dual == pytest.approx(result.duals.sum() - 0.5 * max(forms), rel=1e-6)
    hinge = np.maximum(0.0, 1.0 - signs[:, 0] * model.decision_function(X)).sum()
    assert model.certificate.primal > hinge


def test_a_training_that_is_resumed_between_stages_has_the_same_bits(noisy, stages_seen, tmp_path):
    dataset = Dataset.from_arrays(*noisy)
    train(dataset, run_dir=tmp_path / "whole", tol=1e-3, **SETTING)
    whole = list(stages_seen)
    stages_seen.clear()
    last = whole.index(160)
    train(dataset, run_dir=tmp_path / "parts", tol=1e-3, max_rounds=last, **SETTING)
    train(dataset, run_dir=tmp_path / "parts", tol=1e-3, resume=True, **SETTING)
    assert stages_seen == whole
    assert (tmp_path / "parts" / "model.mllkm").read_bytes() == (tmp_path / "whole" / "model.mllkm").read_bytes()


def test_data_with_few_samples_at_the_bound_go_from_the_first_stage_to_the_last(stages_seen):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(160, 2)) + np.repeat([[0.0], [6.0]], 80, axis=0)
    train(Dataset.from_arrays(X, np.repeat([0, 1], 80)), **SETTING)
    assert stages_seen[0] == 40
    assert set(stages_seen[1:]) <= {160}
