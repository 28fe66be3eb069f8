"""Folds: each row is held out once or not at all, all classes stay to be trained on, and large folds are cut."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mllkm_scale import Dataset
from mllkm_scale.plan.contenders import FEW_ROWS
from mllkm_scale.run.tuning import folds as module
from mllkm_scale.run.tuning.folds import FOLDS, error_of, folds_of, make_trial

LABELS = st.lists(st.integers(0, 5), min_size=2, max_size=60)
SIZES = st.lists(st.integers(2, 300), min_size=2, max_size=8)


def codes_of(labels):
    """Numbers of the classes, without gaps."""
    return np.unique(np.array(labels), return_inverse=True)[1]


def shuffled(sizes, seed=0):
    """Codes of classes of these sizes, in any order."""
    return np.random.default_rng(seed).permutation(np.repeat(np.arange(len(sizes)), sizes))


@dataclass
class Built:
    """Stands for the problem of some rows, which it tells."""

    dataset: Dataset
    closed: bool = False

    @property
    def preprocessor(self):
        return SimpleNamespace(transform=lambda rows, dtype: rows.astype(dtype))

    def close(self):
        self.closed = True


def trials_of(codes):
    """Trials on rows that tell their number."""
    dataset = Dataset.from_arrays(np.arange(len(codes), dtype=np.float64)[:, None], codes)
    return [make_trial(dataset, codes, fold, Built) for fold in folds_of(codes, 0, FEW_ROWS)]


@given(LABELS, st.integers(2, 4))
def test_folds_hold_each_row_out_at_most_once_and_keep_all_classes(labels, n_folds):
    codes = codes_of(labels)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "FOLDS", n_folds)
        trials, counts = trials_of(codes), np.bincount(codes)
    held = [trial.rows[:, 0].astype(int) for trial in trials]
    together = np.concatenate([*held, np.empty(0, int)])
    assert len(np.unique(together)) == len(together)
    assert not (counts[codes[together]] == 1).any()
    if len(trials) == n_folds:
        assert len(together) == counts[counts > 1].sum()
    for rows, trial in zip(held, trials, strict=True):
        np.testing.assert_array_equal(trial.codes, codes[rows])
        rest = trial.problem.dataset.chunk(0)[:, 0].astype(int)
        assert sorted([*rest, *rows]) == list(range(len(codes)))
        assert set(codes[rest]) == set(codes)
        np.testing.assert_array_equal(trial.problem.dataset.labels(), codes[rest])


@given(st.lists(st.integers(3, FEW_ROWS // 8), min_size=2, max_size=8), st.integers(0, 9))
def test_up_to_few_rows_every_row_is_held_out_once(sizes, seed):
    codes = shuffled(sizes, seed)
    assert len(codes) <= FEW_ROWS
    folds = list(folds_of(codes, seed, FEW_ROWS))
    assert len(folds) == FOLDS
    np.testing.assert_array_equal(np.sort(np.concatenate([fold.held for fold in folds])), np.arange(len(codes)))


@given(st.integers(FEW_ROWS - 2, FEW_ROWS + 3))
def test_with_more_rows_a_single_fold_is_held_out(n_rows):
    folds = list(folds_of(np.arange(n_rows) % 3, 0, FEW_ROWS))
    assert len(folds) == (FOLDS if n_rows <= FEW_ROWS else 1)
    assert all(abs(len(fold.held) - n_rows / FOLDS) < 1 for fold in folds)


def test_a_class_with_a_single_row_is_held_out_in_no_fold_and_single_rows_have_none():
    codes = np.append(np.arange(20) % 2, 2)
    assert all(20 in fold.rest and 20 not in fold.held for fold in folds_of(codes, 0, FEW_ROWS))
    assert list(folds_of(np.arange(4), 0, FEW_ROWS)) == []


def test_folds_have_a_like_share_of_every_class():
    codes = np.repeat([0, 1, 2], [90, 30, 9])
    for fold in folds_of(codes, 0, FEW_ROWS):
        assert np.bincount(codes[fold.held]).tolist() == [30, 10, 3]


@given(SIZES, st.integers(2, 400), st.integers(0, 9))
def test_at_most_so_many_rows_are_trained_on_and_held_out_and_every_class_is_kept(sizes, most, seed):
    """Shares are rounded for each class, and a class keeps a row: less than a row a class comes on top."""
    codes = shuffled(sizes, seed)
    whole, cut = list(folds_of(codes, seed, FEW_ROWS)), list(folds_of(codes, seed, FEW_ROWS, most))
    assert len(whole) == len(cut)
    for all_of, some in zip(whole, cut, strict=True):
        for rows, kept, bound in ((all_of.rest, some.rest, most), (all_of.held, some.held, most)):
            assert set(kept) <= set(rows)
            assert np.all(np.diff(kept) > 0)
            assert set(codes[kept]) == set(codes[rows])
            if len(rows) <= bound:
                np.testing.assert_array_equal(kept, rows)
                continue
            assert len(kept) < bound + len(sizes)
            shares = np.bincount(codes[rows], minlength=len(sizes)) * bound / len(rows)
            counts = np.bincount(codes[kept], minlength=len(sizes))
            assert np.all(np.abs(counts - np.maximum(shares, (shares > 0) * 1.0)) <= 0.5)


def test_like_classes_are_cut_to_exactly_so_many_rows():
    codes = np.arange(30_000) % 2
    [fold] = folds_of(codes, 0, FEW_ROWS, 4000)
    assert (len(fold.rest), len(fold.held)) == (4000, 4000)
    assert np.bincount(codes[fold.held]).tolist() == [2000, 2000]


@given(SIZES, st.integers(0, 9), st.sampled_from([None, 50]))
def test_folds_are_the_same_for_the_same_seed(sizes, seed, most):
    codes = shuffled(sizes)
    first, second = list(folds_of(codes, seed, FEW_ROWS, most)), list(folds_of(codes, seed, FEW_ROWS, most))
    for one, other in zip(first, second, strict=True):
        np.testing.assert_array_equal(one.rest, other.rest)
        np.testing.assert_array_equal(one.held, other.held)


def test_another_seed_holds_other_rows_out():
    codes = np.arange(90) % 2
    helds = [tuple(next(folds_of(codes, seed, FEW_ROWS)).held) for seed in (0, 1)]
    assert helds[0] != helds[1]


def test_a_trial_closes_its_problem():
    [trial, *_] = trials_of(np.arange(20) % 2)
    trial.close()
    assert trial.problem.closed


def test_mistakes_are_rows_whose_sign_or_largest_score_is_of_another_class():
    weights = np.array([1.0, 1.0, 6.0, 8.0])
    assert error_of(np.array([[-1.0], [0.0], [0.5], [2.0]]), np.array([0, 1, 0, 1]), weights) == 7 / 16
    assert error_of(np.array([[3.0, 1.0, 2.0], [0.0, -1.0, 4.0]]), np.array([0, 1]), weights[:2]) == 0.5
