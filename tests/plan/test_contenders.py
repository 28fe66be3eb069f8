"""Which settings compete: by the number of rows, and by what the parameters leave open."""

from __future__ import annotations

from dataclasses import replace
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
    C_PER_OUTPUT,
    FEW_ROWS,
    FOLD_ROWS,
    GRID_ROWS,
    LEARNED_C,
    LEAST_ROWS,
    RIDGES,
    SAMPLES_C,
    WIDE_C,
    contenders,
    may_be_learned,
    may_be_samples,
)

TOO_FEW, FEW, GRID, SOME, MANY = LEAST_ROWS - 1, FEW_ROWS, GRID_ROWS, FOLD_ROWS, FOLD_ROWS + 1
EDGES = [1, TOO_FEW, LEAST_ROWS, FEW, FEW + 1, GRID, GRID + 1, SOME, MANY]
ROWS = st.one_of(st.sampled_from(EDGES), st.integers(1, 10**7))


def is_learned(params: Params) -> bool:
    return anchor_spec(params.anchors).learned


def kinds(found: list[Params]) -> list[tuple[object, ...]]:
    """Anchors and metric of each kind of candidates, and gammas that are wide."""
    every = [(rival.anchors, rival.metric, *([] if rival.bumps == "auto" else [rival.bumps])) for rival in found]
    return list(dict.fromkeys(every))


@given(st.integers(1, TOO_FEW))
def test_too_few_rows_to_hold_some_out_are_all_anchors(n_rows):
    [only] = contenders(resolve(), n_rows)
    assert (only.anchors, only.metric, only.scaling, only.C) == ("all", None, "standard", "auto")


@pytest.mark.parametrize(
    "fixed",
    [{"gammas": [0.1, 1.0]}, {"gammas": 0.5}, {"strategy": "paper"}, {"local_bias": 0}, {"preset": "paper"}],
    ids=str,
)
@pytest.mark.parametrize("n_rows", [TOO_FEW, LEAST_ROWS, FEW, SOME, MANY])
def test_what_learned_kernels_cannot_have_makes_all_samples_anchors(fixed, n_rows):
    params = resolve(**fixed)
    [only] = contenders(params, n_rows)
    assert (only.anchors, only.metric) == ("all", None)
    assert only.scaling == ("none" if "preset" in fixed else "standard")
    assert only.C == params.C


@pytest.mark.parametrize("n_rows", [LEAST_ROWS, 700, FEW])
def test_with_few_rows_learned_kernels_compete_with_all_samples(n_rows):
    metric, plain, straight, weighed, wide_samples, narrow_samples = contenders(resolve(), n_rows)
    assert [rival.ridge for rival in (metric, plain, straight, weighed)] == [RIDGES[1], RIDGES[1], RIDGES[2], RIDGES[0]]
    assert [rival.metric for rival in (metric, plain, straight, weighed)] == ["diagonal", None, None, "diagonal"]
    assert (straight.gammas, straight.scaling) == ("wide", "standard")
    for rival in (metric, plain, weighed):
        assert (rival.gammas, rival.scaling) == ("auto", "auto")
    for rival in (metric, plain, straight):
        assert (rival.anchors, rival.finish) == ("learned", "none")
    assert (weighed.anchors, weighed.C, weighed.finish) == ("learned", LEARNED_C, "mkl")
    assert (wide_samples.gammas, wide_samples.C) == ("wide", WIDE_C)
    assert (narrow_samples.gammas, narrow_samples.C) == ("narrow", C_PER_OUTPUT)
    for rival in (wide_samples, narrow_samples):
        assert (rival.anchors, rival.metric, rival.scaling, rival.finish) == ("all", None, "standard", "auto")


def test_the_more_classes_the_larger_is_C_of_all_samples():
    assert contenders(resolve(), FEW, 7)[-1].C == 7 * C_PER_OUTPUT
    assert contenders(resolve(C=2.0), FEW, 7)[-1].C == 2.0


@pytest.mark.parametrize("n_rows", [FEW + 1, GRID])
def test_with_more_rows_ridges_compete_with_more_and_narrower_bumps_and_with_all_samples(n_rows):
    *ridges, narrow, samples = contenders(resolve(), n_rows)
    assert kinds(ridges) == [("learned", "diagonal")]
    assert [rival.ridge for rival in ridges] == list(RIDGES)
    assert {rival.finish for rival in (*ridges, samples)} == {"auto"}
    assert narrow == replace(ridges[0], gammas="narrow", finish="none")
    assert (samples.anchors, samples.gammas, samples.C) == ("all", "auto", SAMPLES_C)


@pytest.mark.parametrize("given", [{"max_kernels": 50}, {"anchors": "learned:40"}, {"gammas": "wide"}])
def test_narrow_bumps_compete_only_if_number_and_widths_of_the_kernels_are_free(given):
    found = contenders(resolve(**{"anchors": "learned"} | given), GRID + 1)
    assert [rival.ridge for rival in found] == list(RIDGES)
    assert [rival.ridge for rival in contenders(resolve(), GRID + 1, 101)] == list(RIDGES)


@given(st.one_of(st.sampled_from([GRID + 1, SOME, MANY]), st.integers(GRID + 1, 10**8)))
def test_with_many_rows_only_learned_kernels_compete(n_rows):
    found = contenders(resolve(), n_rows)
    assert [rival.ridge for rival in found] == [*RIDGES, RIDGES[0]]
    assert {(rival.anchors, rival.metric) for rival in found} == {("learned", "diagonal")}
    assert [rival.gammas for rival in found] == ["auto"] * len(RIDGES) + ["narrow"]
    assert found[0].ridge == RIDGE == min(RIDGES)


LEARNED, PLAIN, STRAIGHT = ("learned", "diagonal"), ("learned", None), ("learned", None, "wide")
SAMPLES = [("all", None, "wide"), ("all", None, "narrow")]
FREE = [LEARNED, PLAIN, STRAIGHT]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"metric": "full"}, [("learned", "full"), ("learned", "full", "wide"), *SAMPLES]),
        ({"metric": 3}, [("learned", 3), ("learned", 3, "wide"), *SAMPLES]),
        ({"metric": None}, [("learned", None), ("learned", None, "wide"), *SAMPLES]),
        ({"anchors": "learned:9"}, [("learned:9", *kind[1:]) for kind in FREE]),
        ({"anchors": "learned+all"}, [("learned+all", *kind[1:]) for kind in FREE]),
        ({"anchors": "learned", "gammas": "wide"}, [(*LEARNED, "wide"), STRAIGHT]),
        ({"anchors": "learned", "gammas": [0.5]}, [LEARNED, PLAIN]),
        ({"anchors": "all"}, [("all", None)]),
        ({"anchors": "all", "gammas": "wide"}, [("all", None, "wide")]),
        ({"gammas": "wide"}, [("all", None, "wide")]),
        ({"anchors": 20}, [(20, None)]),
        ({"anchors": "kmeans:7"}, [("kmeans:7", None)]),
        ({"max_kernels": 5}, FREE),
        ({"finish": "none"}, FREE),
        ({"finish": "mkl"}, FREE),
        ({"C": 7.0}, [*FREE, *SAMPLES]),
        ({"ridge": 7.0}, [LEARNED, *SAMPLES]),
    ],
    ids=str,
)
def test_parameters_that_are_given_restrict_the_contenders(given, expected):
    assert kinds(contenders(resolve(**given), 700)) == expected


def test_an_array_of_anchors_has_no_rivals():
    anchors = np.eye(4)
    [only] = contenders(resolve(anchors=anchors), 700)
    assert only.anchors is anchors


@pytest.mark.parametrize("n_rows", [LEAST_ROWS, FEW, SOME, MANY])
def test_a_strength_that_is_given_is_the_only_one(n_rows):
    found = contenders(resolve(ridge=3.0, C=7.0), n_rows)
    assert all((rival.ridge, rival.C, rival.finish) == (3.0, 7.0, "auto") for rival in found)
    settled = resolve(anchors="learned", metric="full", ridge=3.0)
    assert contenders(settled, n_rows) == [settled]


@pytest.mark.parametrize("fixed", [{"C": 7.0}, {"finish": "mkl"}, {"finish": "none"}], ids=str)
def test_how_to_finish_competes_only_where_it_is_open(fixed):
    for rival in contenders(resolve(**fixed), 700):
        assert {name: getattr(rival, name) for name in fixed} == fixed
        assert rival.finish == fixed.get("finish", "auto")


def test_the_scaling_that_is_given_is_that_of_all():
    assert {rival.scaling for rival in contenders(resolve(scaling="minmax"), 700)} == {"minmax"}


@pytest.mark.parametrize("n_rows", [1, TOO_FEW])
def test_learned_kernels_that_were_asked_for_are_one_setting_where_rows_are_too_few(n_rows):
    for params in (resolve(anchors="learned"), resolve(finish="none")):
        [only] = contenders(params, n_rows)
        assert (only.anchors, only.metric, only.ridge) == ("learned", "diagonal", RIDGE)


GIVEN = st.fixed_dictionaries(
    {},
    optional={
        "anchors": st.sampled_from(["auto", "all", "learned", "learned:5", "learned+all", "learned+7", "kmeans:4", 30]),
        "metric": st.sampled_from(["auto", "diagonal", "full", None, 2]),
        "ridge": st.sampled_from(["auto", 0.5]),
        "C": st.sampled_from(["auto", 4.0]),
        "finish": st.sampled_from(["auto", "mkl"]),
        "scaling": st.sampled_from(["auto", "standard", "quantile"]),
        "gammas": st.sampled_from(["auto", "wide", "narrow", (0.1,), [0.2, 0.3]]),
        "max_kernels": st.sampled_from([None, 5]),
        "local_bias": st.sampled_from(["auto", 0.0, 1.0]),
        "componentwise": st.booleans(),
    },
)


@given(GIVEN, ROWS)
def test_every_contender_can_work_and_leaves_nothing_open(given, n_rows):
    params = resolve(**given)
    found = contenders(params, n_rows)
    assert found
    assert len({repr(rival) for rival in found}) == len(found)
    for rival in found:
        assert rival.check() is rival
        assert (rival.metric == "auto", rival.anchors == "auto") == (False, False)
        assert contenders(rival, n_rows) == [rival]
    assert any(is_learned(rival) for rival in found) == may_be_learned(params, n_rows)
    assert any(not is_learned(rival) for rival in found) == may_be_samples(params, n_rows)


@given(GIVEN, ROWS)
def test_what_is_given_is_kept_by_every_contender(given, n_rows):
    for rival in contenders(resolve(**given), n_rows):
        for name, value in given.items():
            if value != "auto" and (name != "metric" or is_learned(rival)):
                assert getattr(rival, name) == value


def test_more_rows_never_bring_more_settings_where_settings_compete():
    counts = [len(contenders(Params(), n)) for n in (FEW, FEW + 1, GRID + 1)]
    assert all(more > fewer for more, fewer in pairwise(counts))


@pytest.mark.parametrize("fixed", [{"strategy": "paper"}, {"local_bias": 0}], ids=str)
@pytest.mark.parametrize("n_rows", [TOO_FEW, 700, MANY])
def test_what_a_machine_as_learned_cannot_have_is_refused_or_gives_no_contender_that_cannot_work(fixed, n_rows):
    try:
        params = resolve(finish="none", **fixed)
    except ParameterError:
        return
    for rival in contenders(params, n_rows):
        rival.check()
