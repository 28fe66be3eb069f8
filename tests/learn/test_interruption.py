"""A training that is interrupted while it learns kernels: what is kept, and that it goes on with the same bits."""

from __future__ import annotations

import json

import pytest

from mllkm_scale import Dataset, train
from mllkm_scale.base.events import Epoch
from mllkm_scale.errors import InterruptedTraining
from mllkm_scale.learn.settings import RIDGE
from mllkm_scale.model import model_checksum
from mllkm_scale.report import write_report


def test_a_descent_that_was_interrupted_goes_on_with_the_same_bits(tmp_path, real_data):
    X, y = real_data("breast_cancer")
    data = Dataset.from_arrays(X[:200, :6], y[:200])
    params = {"anchors": "learned:15", "metric": "diagonal", "ridge": RIDGE, "C": 1.0, "n_jobs": 1}
    asked, epochs = [0], []

    def stop() -> bool:
        asked[0] += len(epochs) >= 4
        return asked[0] > 3  # in the middle of an epoch

    def listen(event: object) -> None:
        if isinstance(event, Epoch):
            epochs.append(event)

    with pytest.raises(InterruptedTraining, match="what was learned so far is kept"):
        train(data, run_dir=tmp_path / "run", report=False, listener=listen, should_stop=stop, **params)
    assert len((tmp_path / "run" / "learning.jsonl").read_text().splitlines()) == 4
    assert json.loads((tmp_path / "run" / "run.json").read_text())["learned"] is None
    assert "<h2>Learning</h2>" in write_report(tmp_path / "run").read_text()
    resumed = train(data, run_dir=tmp_path / "run", report=False, resume=True, **params)
    lines = [json.loads(line) for line in (tmp_path / "run" / "learning.jsonl").read_text().splitlines()]
    assert [line["number"] for line in lines] == list(range(1, lines[-1]["n_epochs"] + 1))
    assert model_checksum(resumed.model) == model_checksum(train(data, **params).model)
