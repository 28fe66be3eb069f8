"""Tables in streams: kinds and levels of the first samples, a place for later levels, the same bits after a resume."""

from __future__ import annotations

import io
from contextlib import closing

import numpy as np
import pandas as pd
import pytest

from mllkm_scale import MLLKMClassifier
from mllkm_scale.data import Dataset, convert
from mllkm_scale.errors import DataError, InterruptedTraining
from mllkm_scale.model import Model
from mllkm_scale.online import DatasetSamples, open_samples, stream
from mllkm_scale.online.sources.csv_samples import CSVSamples

N = 600
SETTINGS = {"warm_up": 150, "max_kernels": 40, "n_jobs": 1}


def homes(n: int = N, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    town, rooms = rng.choice(["Lyon", "Graz", "Oslo"], n).astype(object), rng.integers(1, 8, n).astype(float)
    sold = np.where((town == "Oslo") != (rooms > 4), "yes", "no")
    town[200::9] = "Bonn"  # comes after the warm-up
    town[::17], rooms[5::13] = None, np.nan
    return pd.DataFrame({"town": town, "rooms": rooms, "garden": rng.random(n) < 0.5, "sold": sold})


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("homes") / "homes.csv"
    homes().to_csv(path, index=False)
    return path


@pytest.fixture(scope="module")
def whole(path, tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole") / "run"
    with closing(open_samples(path, warm_up=150)) as samples:
        return folder, stream(samples, run_dir=folder, **SETTINGS)


def test_a_stream_learns_from_text_and_predicts_tables(whole):
    _, result = whole
    assert result.ended.error < 0.25
    new = homes(200, seed=1)
    model = result.model
    assert np.mean(model.predict(new.drop(columns="sold")) == new.sold) > 0.8
    assert "town=(other)" in model.encoding.feature_names
    assert sorted(model.encoding.columns[0].levels) == ["Graz", "Lyon", "Oslo"]


def test_levels_that_come_later_are_one_place_of_their_own(whole):
    model = whole[1].model
    rows = homes(3, seed=2).drop(columns="sold").assign(rooms=3.0, garden=True)
    features = [
        model.encoding.dataset(model._table(rows.assign(town=town))).chunk(0) for town in ("Bonn", "Rome", "Lyon")
    ]
    np.testing.assert_array_equal(features[0], features[1])
    assert (features[0] != features[2]).any()
    at = model.encoding.feature_names.index("town=(other)")
    assert (features[0][:, at] == 1).all()
    assert (features[2][:, at] == 0).all()


@pytest.mark.parametrize("polls", [1, 2, 4])
def test_an_interrupted_stream_of_a_table_goes_on_to_the_same_bits(path, whole, tmp_path, polls):
    countdown = iter(range(polls - 1, -1, -1))
    run = {"run_dir": tmp_path, "checkpoint_s": 0.0} | SETTINGS
    with closing(open_samples(path, warm_up=150, chunk_rows=120)) as samples, pytest.raises(InterruptedTraining):
        stream(samples, should_stop=lambda: next(countdown, 1) == 0, **run)
    with closing(open_samples(path, warm_up=150, chunk_rows=77)) as samples:
        stream(samples, resume=True, **run)
    assert (tmp_path / "model.mllkm").read_bytes() == (whole[0] / "model.mllkm").read_bytes()


def test_a_stream_that_is_resumed_with_another_table_is_refused(path, tmp_path):
    run = {"run_dir": tmp_path} | SETTINGS
    with closing(open_samples(path, warm_up=150)) as samples:
        stream(samples, **run)
    homes(N + 100).assign(rooms="many").to_csv(tmp_path / "other.csv", index=False)
    with (
        closing(open_samples(tmp_path / "other.csv", warm_up=150)) as samples,
        pytest.raises(DataError, match=r"other\.csv has other columns or levels"),
    ):
        stream(samples, resume=True, **run)


def test_a_converted_table_is_streamed_too(path, tmp_path):
    convert(path, tmp_path / "homes.h5")
    with closing(DatasetSamples(Dataset.open(tmp_path / "homes.h5"))) as samples:
        result = stream(samples, run_dir=tmp_path / "run", **SETTINGS)
    assert result.ended.error < 0.25
    again = Model.load(tmp_path / "run" / "model.mllkm")
    with Dataset.open(tmp_path / "homes.h5") as data:
        scores = np.concatenate([f for _, f in again.decision_chunks(data)])
    np.testing.assert_allclose(scores, again.decision_function(homes().drop(columns="sold")))


def test_partial_fit_takes_tables_in_any_cuts():
    table = homes()
    X, y = table.drop(columns="sold"), table.sold
    made = []
    for step in (100, 37):
        machine = MLLKMClassifier(warm_up=150, max_kernels=40, n_jobs=1)
        for start in range(0, N, step):
            machine.partial_fit(X[start : start + step], y[start : start + step], classes=["no", "yes"])
        made.append(machine.decision_function(X))
    np.testing.assert_array_equal(*made)
    assert machine.prequential_error_ < 0.25
    with pytest.raises(DataError, match=r"'rooms'.*not a number"):
        machine.partial_fit(X.assign(rooms="many"), y)


def test_a_bad_cell_of_a_table_is_refused_by_its_line_or_skipped():
    text = "".join(f"{'ab'[i % 2]},{i},{i % 3 > 0}\n" for i in range(20)) + "a,many,True\nb,2,False\n"
    with pytest.raises(DataError, match=r"line 21, column 2 \(from 1\) is 'many', not a number"):
        list(CSVSamples(io.StringIO(text), as_number=["1"], warm_up=10).chunks())
    samples = CSVSamples(io.StringIO(text), as_number=["1"], warm_up=10, bad_lines="skip")
    assert sum(len(chunk) for chunk in samples.chunks()) == 21
    assert samples.columns.describe()[0] == "column 0: category of 2 levels ('a', 'b')"
