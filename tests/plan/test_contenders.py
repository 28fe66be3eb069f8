"""Which settings compete: by the number of rows, and by what the parameters leave open."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mllkm_scale.errors import ParameterError
from mllkm_scale.kernels.anchors import anchor_spec
from mllkm_scale.learn.settings import RIDGE
from mllkm_scale.params import Params, resolve
from mllkm_scale.plan.contenders import (
    CS,
    CS_OF_MANY,
    FEW_ROWS,
    FOLD_ROWS,
    GRID_ROWS,
    LEAST_ROWS,
    RIDGES,
    RIDGES_OF_MANY,
    Contender,
    contenders,
    is_settled,
    may_be_learned,
    may_be_samples,
)

TOO_FEW, FEW, GRID, SOME, MANY = LEAST_ROWS - 1, FEW_ROWS, GRID_ROWS, FOLD_ROWS, FOLD_ROWS + 1
EDGES = [1, TOO_FEW, LEAST_ROWS, FEW, FEW + 1, GRID, GRID + 1, SOME, MANY]
ROWS = st.one_of(st.sampled_from(EDGES), st.integers(1, 10**7))


def kinds(found: list[Contender]) -> list[tuple[object, ...]]:
    """Anchors and metric of each, and gammas that are wide."""
    return [
        (rival.params.anchors, rival.params.metric, *(["wide"] if rival.params.gammas == "wide" else []))
        for rival in found
    ]


@given(st.integers(1, TOO_FEW))
def test_too_few_rows_to_hold_some_out_are_all_anchors(n_rows):
    found = contenders(resolve(), n_rows)
    assert kinds(found) == [("all", None)]
    assert is_settled(found)
    assert (found[0].params.scaling, found[0].strengths) == ("standard", ("auto",))


@pytest.mark.parametrize(
    "fixed",
    [{"gammas": [0.1, 1.0]}, {"gammas": 0.5}, {"strategy": "paper"}, {"local_bias": 0}, {"preset": "paper"}],
    ids=str,
)
@pytest.mark.parametrize("n_rows", [TOO_FEW, LEAST_ROWS, FEW, SOME, MANY])
def test_what_learned_kernels_cannot_have_makes_all_samples_anchors(fixed, n_rows):
    params = resolve(**fixed)
    found = contenders(params, n_rows)
    assert kinds(found) == [("all", None)]
    assert is_settled(found)
    assert found[0].params.scaling == ("none" if "preset" in fixed else "standard")
    assert found[0].at(found[0].strengths[0]).C == params.C


@pytest.mark.parametrize("n_rows", [LEAST_ROWS, 700, FEW])
def test_with_few_rows_learned_kernels_compete_with_all_samples(n_rows):
    found = contenders(resolve(), n_rows)
    assert kinds(found) == [("learned", "diagonal"), ("all", None, "wide"), ("all", None)]
    assert [rival.strengths for rival in found] == [RIDGES, CS, CS]
    assert [rival.strengths[rival.first] for rival in found] == [0.1, 30.0, 30.0]
    assert [rival.learned for rival in found] == [True, False, False]
    assert [rival.doubted for rival in found] == [False, True, False]
    assert [rival.params.scaling for rival in found] == ["auto", "standard", "standard"]


@pytest.mark.parametrize("n_rows", [FEW + 1, GRID])
def test_with_more_rows_bumps_of_all_widths_compete_alone(n_rows):
    found = contenders(resolve(), n_rows)
    assert kinds(found) == [("learned", "diagonal"), ("all", None)]
    assert [rival.strengths for rival in found] == [RIDGES_OF_MANY, CS_OF_MANY]


@given(st.one_of(st.sampled_from([GRID + 1, SOME, MANY]), st.integers(GRID + 1, 10**8)))
def test_with_many_rows_only_the_ridges_of_learned_kernels_compete(n_rows):
    found = contenders(resolve(), n_rows)
    assert kinds(found) == [("learned", "diagonal")]
    assert [rival.strengths for rival in found] == [RIDGES_OF_MANY]
    assert found[0].at(found[0].strengths[0]).ridge == RIDGE


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"metric": "full"}, [("learned", "full"), ("all", None, "wide"), ("all", None)]),
        ({"metric": 3}, [("learned", 3), ("all", None, "wide"), ("all", None)]),
        ({"metric": None}, [("learned", None), ("all", None, "wide"), ("all", None)]),
        ({"anchors": "learned:9"}, [("learned:9", "diagonal")]),
        ({"anchors": "learned+all"}, [("learned+all", "diagonal")]),
        ({"anchors": "all"}, [("all", None)]),
        ({"anchors": "all", "gammas": "wide"}, [("all", None, "wide")]),
        ({"gammas": "wide"}, [("all", None, "wide")]),
        ({"anchors": 20}, [(20, None)]),
        ({"anchors": "kmeans:7"}, [("kmeans:7", None)]),
        ({"max_kernels": 5}, [("learned", "diagonal")]),
        ({"finish": "none"}, [("learned", "diagonal")]),
        ({"finish": "mkl"}, [("learned", "diagonal")]),
    ],
    ids=str,
)
def test_parameters_that_are_given_restrict_the_contenders(given, expected):
    assert kinds(contenders(resolve(**given), 700)) == expected


def test_an_array_of_anchors_has_no_rivals():
    anchors = np.eye(4)
    [only] = contenders(resolve(anchors=anchors), 700)
    assert only.params.anchors is anchors
    assert not only.learned


@pytest.mark.parametrize("n_rows", [LEAST_ROWS, FEW, SOME, MANY])
def test_a_strength_that_is_given_is_the_only_one(n_rows):
    found = contenders(resolve(ridge=3.0, C=7.0), n_rows)
    assert all(rival.strengths == ((3.0,) if rival.learned else (7.0,)) for rival in found)
    settled = contenders(resolve(anchors="learned", metric="full", ridge=3.0), n_rows)
    assert is_settled(settled)
    assert settled[0].at(3.0) == settled[0].params


def test_the_scaling_that_is_given_is_that_of_all():
    assert [rival.params.scaling for rival in contenders(resolve(scaling="minmax"), 700)] == ["minmax"] * 3


@pytest.mark.parametrize("n_rows", [1, TOO_FEW])
def test_learned_kernels_that_were_asked_for_are_one_setting_where_rows_are_too_few(n_rows):
    for params in (resolve(anchors="learned"), resolve(finish="none")):
        found = contenders(params, n_rows)
        assert kinds(found) == [("learned", "diagonal")]
        assert is_settled(found)
        assert found[0].strengths == (RIDGE,)


@pytest.mark.parametrize("n_rows", [LEAST_ROWS, MANY])
def test_a_strength_is_the_ridge_of_a_descent_or_the_c_of_samples(n_rows):
    for rival in contenders(resolve(), n_rows):
        at = rival.at(2.5)
        assert (at.ridge, at.C) == ((2.5, "auto") if rival.learned else ("auto", 2.5))


GIVEN = st.fixed_dictionaries(
    {},
    optional={
        "anchors": st.sampled_from(["auto", "all", "learned", "learned:5", "learned+all", "kmeans:4", 30]),
        "metric": st.sampled_from(["auto", "diagonal", "full", None, 2]),
        "ridge": st.sampled_from(["auto", 0.5]),
        "C": st.sampled_from(["auto", 4.0]),
        "finish": st.sampled_from(["auto", "mkl"]),
        "scaling": st.sampled_from(["auto", "standard", "quantile"]),
        "gammas": st.sampled_from(["auto", "wide", (0.1,)]),
        "max_kernels": st.sampled_from([None, 5]),
        "local_bias": st.sampled_from(["auto", 0.0, 1.0]),
        "componentwise": st.booleans(),
    },
)


@given(GIVEN, ROWS)
def test_every_contender_can_work_and_leaves_only_its_strength_open(given, n_rows):
    params = resolve(**given)
    found = contenders(params, n_rows)
    assert found
    assert len({repr(kind) for kind in kinds(found)}) == len(found)
    for rival in found:
        assert rival.strengths
        assert rival.params.metric != "auto"
        assert rival.params.anchors != "auto"
        assert rival.learned == anchor_spec(rival.params.anchors).learned
        for strength in rival.strengths:
            at = rival.at(strength)
            assert at.check() is at
            assert contenders(at, n_rows) == [Contender(at, (at.ridge if rival.learned else at.C,))]
    assert any(rival.learned for rival in found) == may_be_learned(params, n_rows)
    assert any(not rival.learned for rival in found) == may_be_samples(params, n_rows)


@given(GIVEN, ROWS)
def test_what_is_given_is_kept_by_every_contender(given, n_rows):
    for rival in contenders(resolve(**given), n_rows):
        for name, value in given.items():
            if value != "auto" and (name != "metric" or rival.learned):
                assert all(getattr(rival.at(strength), name) == value for strength in rival.strengths)


def test_more_rows_never_bring_more_settings_where_settings_compete():
    counts = [sum(len(rival.strengths) for rival in contenders(Params(), n)) for n in (FEW, FEW + 1, GRID + 1)]
    assert all(more > fewer for more, fewer in pairwise(counts))


@pytest.mark.parametrize("fixed", [{"strategy": "paper"}, {"local_bias": 0}], ids=str)
@pytest.mark.parametrize("n_rows", [TOO_FEW, 700, MANY])
def test_what_a_machine_as_learned_cannot_have_is_refused_or_gives_no_contender_that_cannot_work(fixed, n_rows):
    try:
        params = resolve(finish="none", **fixed)
    except ParameterError:
        return
    for rival in contenders(params, n_rows):
        rival.params.check()
