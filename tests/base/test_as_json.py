from __future__ import annotations

import numpy as np

from mllkm_scale.base.events import Phase, jsonable


def test_jsonable_unfolds_numpy_values_and_dataclasses() -> None:
    value = {
        "n": np.int64(3),
        "gaps": np.array([0.5, np.nan]),
        "phase": Phase("check"),
        5: (np.float32(np.inf),),
    }
    assert jsonable(value) == {
        "n": 3,
        "gaps": [0.5, None],
        "phase": {"name": "check", "detail": ""},
        "5": [None],
    }
