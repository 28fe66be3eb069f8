"""A model whose parts do not agree is refused with what is wrong."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from mllkm_scale.errors import ParameterError
from mllkm_scale.kernels.grid import Family


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"anchors": np.zeros((7, 3))},
            r"anchors has shape \(7, 3\), but 2 classes, 7 kernels and 4 features",
        ),
        ({"coef": np.zeros((2, 7, 4))}, r"need \(1, 7, 4\)"),
        ({"local_coef": np.zeros(7)}, r"local_coef has shape \(7,\)"),
        ({"weights": np.zeros((2, 7))}, r"weights has shape \(2, 7\)"),
        ({"kernel_scale": np.zeros(6)}, r"kernel_scale has shape \(6,\)"),
        ({"weights": np.full(7, np.nan)}, "weights holds NaN or infinity"),
        ({"gammas": np.full(7, -1.0)}, "gammas holds -1.0"),
        ({"classes": np.array([1, 0])}, "not in ascending order"),
        ({"classes": np.array([0, 0])}, "not in ascending order"),
        ({"classes": np.array([3])}, "at least two"),
        ({"family": Family("round")}, "map='round' is not known"),  # type: ignore[arg-type]
        ({"family": Family("linear", local_bias=-1.0)}, "local_bias is -1.0"),
    ],
)
def test_arrays_that_do_not_agree_are_refused(make_model, changes, message):
    with pytest.raises(ParameterError, match=message):
        replace(make_model(), **changes)
