"""The integer header on emulated boards: a Cortex-M3 and an AVR, whose int has 16 bits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mllkm_scale import Dataset
from mllkm_scale.export import export_integer_c, integer_machine

Fixture = Any
MACHINES: list[dict[str, Any]] = [
    {"map": "squared", "n_components": 8},
    {"map": "gaussian", "scaling": "standard"},
    {"map": "exponential", "componentwise": True, "scaling": "auto"},
    {"map": "linear", "scaling": "standard+quantile", "fold": "mapped"},
]


@pytest.mark.parametrize("board", [0, 1], ids=["Cortex-M3", "AVR"])
@pytest.mark.parametrize("choice", MACHINES, ids=lambda choice: choice["map"])
@pytest.mark.parametrize("bits", [4, 8, 16])
def test_a_board_gives_the_integers_of_python(
    bits: int,
    choice: dict[str, Any],
    board: int,
    boards: Fixture,
    digits: Fixture,
    table: Fixture,
    machine: Fixture,
    tmp_path: Path,
) -> None:
    place = boards.BOARDS[board]
    if place.missing:
        pytest.skip(f"there is no {' and no '.join(place.missing)}")
    X, y = digits if "n_components" in choice else table
    model = machine(X, y % 3 if "n_components" in choice else y, n_kernels=5, **choice)
    integers = integer_machine(model, Dataset.from_arrays(X), bits)
    export_integer_c(model, tmp_path / "model.h", Dataset.from_arrays(X), bits)
    inputs = integers.preparation.inputs
    ends = np.stack([np.full(X.shape[1], inputs.low), np.full(X.shape[1], inputs.high)])
    U = np.concatenate([inputs.quantise(X[:12]), ends])
    found = place.run(tmp_path / "model.h", U)
    np.testing.assert_array_equal(found.scores, integers.scores(U))
    np.testing.assert_array_equal(found.codes, integers.codes(U))
    assert (found.counts > 0).all()
