"""What a model says of its training is plain data."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from mllkm_scale.errors import ParameterError
from mllkm_scale.model import ModelRecord


def test_a_record_holds_what_json_holds():
    record = ModelRecord(np.float32(2), 1, 0.5, 0.1, "x", np.int64(3), 4, None, params={"a": (np.int64(1), 2)})
    assert record.params == {"a": [1, 2]}
    assert isinstance(record.n_open, int)
    with pytest.raises(ParameterError, match="a set, which JSON cannot hold"):
        replace(record, params={"a": {1}})
