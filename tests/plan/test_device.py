"""The bytes of a machine on a device are those of its integers, or a few more; sizes that compete fit."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mllkm_scale import Dataset, Model
from mllkm_scale.base.units import parse_bytes
from mllkm_scale.data import Preprocessor
from mllkm_scale.errors import BudgetError, ParameterError
from mllkm_scale.export import integer_machine
from mllkm_scale.kernels.grid import Family
from mllkm_scale.kernels.maps import MAPS
from mllkm_scale.model import ModelRecord
from mllkm_scale.params import resolve
from mllkm_scale.plan.device import BITS, DIRECTIONS, DeviceSize, judging_bytes, other_shares, sizes_within
from mllkm_scale.plan.training import make_plan

RECORD = ModelRecord(2.0, 1.99, 0.005, 0.01, "converged", 90, 50, 0)


@settings(max_examples=40, deadline=None)
@given(
    map=st.sampled_from(MAPS),
    classes=st.integers(2, 5),
    columns=st.integers(1, 12),
    directions=st.one_of(st.none(), st.integers(1, 6)),
    bits=st.sampled_from(BITS),
    kernels=st.integers(1, 6),
    indicators=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_a_machine_takes_no_more_than_its_size(
    map: str, classes: int, columns: int, directions: int | None, bits: int, kernels: int, indicators: bool, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(50, 12)) * rng.uniform(0.01, 100, 12)
    if indicators:
        X[:, ::2] = X[:, ::2] > 0
    outputs = 1 if classes == 2 else classes
    size = DeviceSize(map, outputs, bits, columns, directions, kernels)  # type: ignore[arg-type]
    preprocessor = Preprocessor.fit(Dataset.from_arrays(X), "standard", features=rng.permutation(12)[:columns])
    if directions is not None:
        preprocessor = preprocessor.mapped(rng.normal(size=(directions, columns)))
    Z = preprocessor.transform(X)
    model = Model(
        family=Family(map),  # type: ignore[arg-type]
        classes=np.arange(classes),
        anchors=Z[:kernels],
        gammas=np.full(kernels, 0.1),
        kernel_scale=np.ones(kernels),
        weights=np.full(kernels, 1 / kernels),
        coef=rng.normal(size=(outputs, kernels, size.width)),
        local_coef=rng.normal(size=(outputs, kernels)),
        preprocessor=preprocessor,
        certificate=RECORD,
    )
    taken = integer_machine(model, Dataset.from_arrays(X), bits).constant_bytes
    assert taken <= size.constant_bytes
    assert taken >= size.constant_bytes - 3 * columns - (0 if map == "squared" else 8)


@given(
    max_bytes=st.integers(300, 100_000),
    outputs=st.integers(1, 26),
    n_columns=st.integers(2, 1000),
    most=st.integers(1, 1000),
)
def test_sizes_that_compete_fit(max_bytes: int, outputs: int, n_columns: int, most: int) -> None:
    directions = [*(count for count in DIRECTIONS if count <= n_columns), None]
    try:
        found = sizes_within(max_bytes, "squared", outputs, n_columns, directions, most)
    except ParameterError:
        assert max_bytes < 200 + 60 * outputs + 8 * n_columns
        return
    more = [other for size in found for other in other_shares(size, max_bytes, n_columns, most, (0.2, 0.7))]
    for size in found + more:
        assert size.constant_bytes <= max_bytes
        assert 1 <= size.kernels <= most
        assert (size.directions or 1) <= size.columns <= n_columns


@pytest.mark.parametrize("directions", [(*DIRECTIONS, None), (7,), (None,)])
def test_too_few_bytes_are_refused_with_enough(directions: tuple[int | None, ...]) -> None:
    with pytest.raises(ParameterError, match="give at least") as refused:
        sizes_within(100, "squared", 10, 784, directions, 100)
    least = parse_bytes("".join(str(refused.value).rsplit(" ", 2)[1:]))
    assert sizes_within(least, "squared", 10, 784, directions, 100)


def test_what_judges_a_machine_is_in_the_plan() -> None:
    data = Dataset.from_arrays(np.random.default_rng(0).normal(size=(5000, 8)), np.arange(5000) % 3)
    params = resolve(max_bytes="16kB")
    needed = judging_bytes(16_000, 5000, 8, 3)
    assert needed > 200_000_000
    with pytest.raises(BudgetError):
        make_plan(data, replace(params, memory_budget=needed))
    assert make_plan(data, params).inner_bytes >= needed
