"""A stream leaves a record, and goes on to the same bits wherever it was interrupted, killed, or ended too early."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import closing, contextmanager
from pathlib import Path

import h5py
import numpy as np
import pytest

from mllkm_scale.base.events import Notice, Phase, Streamed, StreamEnded
from mllkm_scale.data import Dataset, Preprocessor
from mllkm_scale.errors import BudgetError, CheckpointError, DataError, InterruptedTraining, ParameterError
from mllkm_scale.model import Model
from mllkm_scale.online import DatasetSamples, IterableSamples, open_samples, stream
from mllkm_scale.online.machine import BLOCK, EPISODE

SETTINGS = {"warm_up": 150, "max_kernels": 40, "gammas": [0.005, 0.02], "n_jobs": 1}
TIMES = ("samples_per_s", "rss_bytes", "elapsed_s")
N = 1300


@pytest.fixture(scope="module")
def digits(real_data):
    """Digits with three labels: two episodes and some samples after a warm-up of 150."""
    X, y = real_data("digits")
    return X[:N], y[:N] % 3


@pytest.fixture(scope="module")
def samples(digits):
    """A source of the first n of them."""

    def make(n=N, **options):
        return DatasetSamples(Dataset.from_arrays(digits[0][:n], digits[1][:n], chunk_rows=100), **options)

    return make


@pytest.fixture(scope="module")
def whole(samples, tmp_path_factory):
    """The folder and the result of a stream that was never interrupted, and what it told."""
    folder, told = tmp_path_factory.mktemp("whole") / "run", []
    return folder, stream(samples(), run_dir=folder, listener=told.append, **SETTINGS), told


def record(folder: Path) -> list[dict]:
    """The reports of a stream without what depends on the clock."""
    lines = [json.loads(line) for line in (folder / "stream.jsonl").read_text().splitlines()]
    return [{name: value for name, value in line.items() if name not in TIMES} for line in lines]


def assert_same(folder: Path, other: Path) -> None:
    assert (folder / "model.mllkm").read_bytes() == (other / "model.mllkm").read_bytes()
    assert record(folder) == record(other)


def interrupted(source, folder, polls, **settings):
    """A stream that is asked to stop when it has asked so often; whether it was."""
    countdown = iter(range(polls - 1, -1, -1))
    try:
        stream(source, run_dir=folder, should_stop=lambda: next(countdown, 1) == 0, **SETTINGS | settings)
    except InterruptedTraining:
        return True
    return False


def test_the_folder_holds_model_record_plan_and_state(whole, digits):
    folder, result, told = whole
    names = {"model.mllkm", "checkpoint.npz", "stream.jsonl", "plan.json", "run.json", "run.log"}
    assert {path.name for path in folder.iterdir()} == names
    assert [report["number"] for report in record(folder)] == [150, 150 + BLOCK * EPISODE, 150 + 2 * BLOCK * EPISODE]
    assert [vars(event)["number"] for event in result.history] == [report["number"] for report in record(folder)]
    run, plan = (json.loads((folder / name).read_text()) for name in ("run.json", "plan.json"))
    assert run["plan"] == plan
    assert run["result"] == vars(result.ended)
    assert run["parameters"]["warm_up"] == 150
    assert (result.ended.n_samples, result.ended.n_kernels) == (N, result.model.n_kernels)
    assert plan["max_kernels"] == 40
    assert [type(event) for event in told] == [Phase, Streamed, StreamEnded]  # some reports only: it is over too soon
    assert "ended: samples 1,300, error" in (folder / "run.log").read_text()
    model, (X, y) = Model.load(folder / "model.mllkm"), digits
    assert np.array_equal(model.predict(X), result.model.predict(X))
    assert np.mean(model.predict(X) == y) > 0.9
    assert result.ended.error < 0.2


def test_without_a_folder_the_model_is_the_same(samples, whole, tmp_path):
    stream(samples(), **SETTINGS).model.save(tmp_path / "model.mllkm")
    assert (tmp_path / "model.mllkm").read_bytes() == (whole[0] / "model.mllkm").read_bytes()
    with pytest.raises(InterruptedTraining, match="after 100 samples: no folder for a checkpoint was given"):
        stream(samples(), should_stop=lambda: True, **SETTINGS)


def test_interrupted_anywhere_it_goes_on_to_the_same_bits_with_any_number_of_threads(samples, whole, tmp_path):
    folder, resume = tmp_path / "run", False
    for polls, n_jobs in [(1, 1), (1, 2), (4, 1), (3, 2)]:  # twice in the warm-up
        assert interrupted(samples(), folder, polls, resume=resume, n_jobs=n_jobs)
        resume = True
    assert Model.load(folder / "model.mllkm").certificate.n_train == 900
    assert not interrupted(samples(), folder, 100, resume=True, n_jobs=2)
    assert_same(folder, whole[0])


@pytest.mark.parametrize(
    "settings",
    [{"window": 400, "n_components": 10, "whiten": True}, {"max_samples": 200, "componentwise": True, "n_jobs": 2}],
    ids=str,
)
def test_what_was_forgotten_stays_so_when_it_goes_on(samples, tmp_path, settings):
    result = stream(samples(), run_dir=tmp_path / "whole", **SETTINGS | settings)
    assert result.history[-1].forgotten > 0
    for polls in (5, 4, 100):
        assert interrupted(samples(), tmp_path / "run", polls, resume=polls != 5, **settings) == (polls < 100)
    assert_same(tmp_path / "run", tmp_path / "whole")


def test_a_large_chunk_is_no_obstacle_to_stopping(digits, tmp_path):
    whole_chunk = DatasetSamples(Dataset.from_arrays(*digits))
    assert whole_chunk.dataset.n_chunks == 1
    assert interrupted(whole_chunk, tmp_path / "run", 1)
    assert Model.load(tmp_path / "run" / "model.mllkm").certificate.n_train == 1024


def test_a_longer_stream_goes_on_where_a_shorter_one_ended(samples, whole, tmp_path):
    for n in (120, 700):  # the first of them ends in the warm-up
        result = stream(samples(n), run_dir=tmp_path / "run", resume=n > 120, classes=range(3), **SETTINGS)
        assert result.ended.n_samples == n
    stream(samples(), run_dir=tmp_path / "run", resume=True, **SETTINGS)
    assert_same(tmp_path / "run", whole[0])
    with pytest.raises(DataError, match=r"ended after 700 samples, but 1300 should be skipped"):
        stream(samples(700), run_dir=tmp_path / "run", resume=True, **SETTINGS)
    assert_same(tmp_path / "run", whole[0])


def test_a_second_pass_in_random_order_goes_on_to_the_same_bits(samples, tmp_path):
    passes = {"passes": 2, "shuffle": True, "seed": 3}
    result = stream(samples(600, **passes), run_dir=tmp_path / "whole", **SETTINGS)
    assert interrupted(samples(600, **passes), tmp_path / "run", 8)
    stream(samples(600, **passes), run_dir=tmp_path / "run", resume=True, **SETTINGS)
    assert_same(tmp_path / "run", tmp_path / "whole")
    assert result.ended.n_samples == 1200


def test_text_without_classes_is_taken_up_in_the_warm_up_and_after(digits, tmp_path):
    names = np.array(["none", "one", "some"])
    lines = [",".join([*map(str, row), names[label]]) for row, label in zip(*digits, strict=True)]
    (tmp_path / "digits.csv").write_text("\n".join(lines[:700]))

    for folder, polls in (("whole", 100), ("run", 1), ("run", 4), ("run", 100)):
        with closing(open_samples(tmp_path / "digits.csv", chunk_rows=100)) as source:
            assert interrupted(source, tmp_path / folder, polls, resume=(tmp_path / folder).exists()) == (polls < 100)
        assert (tmp_path / folder / "model.mllkm").exists() == (polls > 1)
    assert_same(tmp_path / "run", tmp_path / "whole")
    assert Model.load(tmp_path / "run" / "model.mllkm").classes.tolist() == names.tolist()


def test_classes_may_be_named_when_a_warm_up_goes_on(samples, whole, tmp_path):
    assert interrupted(samples(), tmp_path / "run", 1)
    stream(samples(), run_dir=tmp_path / "run", resume=True, classes=[2, 0, 1], **SETTINGS)
    assert_same(tmp_path / "run", whole[0])


KILLED = """
import os, signal, sys
from mllkm_scale.online import open_samples, stream

class Mortal:
    def __init__(self, samples, position):
        self.samples, self.position = samples, position
        self.name, self.remark = samples.name, samples.remark

    def chunks(self, skip=0):
        for chunk in self.samples.chunks(skip):
            if chunk.first >= self.position:
                os.kill(os.getpid(), signal.SIGKILL)
            yield chunk

data, run, position, resume = sys.argv[1:]
samples = Mortal(open_samples(data, chunk_rows=100), int(position))
stream(samples, run_dir=run, resume=resume == "resume", checkpoint_s=0, **SETTINGS)
"""


def test_killed_in_its_middle_it_goes_on_to_the_same_bits(digits, samples, whole, tmp_path):
    with h5py.File(tmp_path / "digits.h5", "w") as file:
        file["X"], file["y"] = digits
    script = KILLED.replace("SETTINGS", repr(SETTINGS))
    for position, resume in ((800, "anew"), (1000, "resume")):
        words = [tmp_path / "digits.h5", tmp_path / "run", str(position), resume]
        done = subprocess.run([sys.executable, "-c", script, *words], timeout=60, check=False)
        assert done.returncode == -9
        assert Model.load(tmp_path / "run" / "model.mllkm").certificate.n_train == position
    with (tmp_path / "run" / "stream.jsonl").open("a") as file:
        file.write(json.dumps(record(whole[0])[-1])[:50])  # a line cut short
    stream(samples(), run_dir=tmp_path / "run", resume=True, **SETTINGS)
    assert_same(tmp_path / "run", whole[0])


def test_a_checkpoint_in_between_is_a_model_to_predict_with(samples, digits, whole, tmp_path):
    met = []

    def look() -> bool:
        if (tmp_path / "run" / "model.mllkm").exists():
            met.append(Model.load(tmp_path / "run" / "model.mllkm"))
        return False

    stream(samples(), run_dir=tmp_path / "run", checkpoint_s=0, should_stop=look, **SETTINGS)
    assert [model.certificate.n_train for model in met] == list(range(200, N, 100))
    assert np.mean(met[0].predict(digits[0]) == digits[1]) > 0.8
    assert_same(tmp_path / "run", whole[0])


def test_a_seed_that_nobody_gave_is_the_saved_one(samples, tmp_path):
    assert interrupted(samples(), tmp_path / "run", 6, random_state=None)
    assert not interrupted(samples(), tmp_path / "run", 100, resume=True, random_state=None)
    seed = Model.load(tmp_path / "run" / "model.mllkm").certificate.seed
    assert seed > 0
    stream(samples(), run_dir=tmp_path / "whole", random_state=seed, **SETTINGS)
    assert_same(tmp_path / "run", tmp_path / "whole")


def test_a_state_that_cannot_be_taken_up_is_refused_and_nothing_is_lost(samples, whole, tmp_path):
    folder = tmp_path / "run"
    assert interrupted(samples(), folder, 6)
    before = {path.name: path.read_bytes() for path in folder.iterdir() if path.name != "run.log"}
    for other in ({"C": 3.0}, {"window": 500}, {"warm_up": 200}, {"gammas": [0.02, 0.005]}, {"random_state": 1}):
        with pytest.raises(CheckpointError, match="other parameters"):
            stream(samples(), run_dir=folder, resume=True, **SETTINGS | other)
    damaged = bytearray(before["checkpoint.npz"])
    damaged[len(damaged) // 2] ^= 1
    (folder / "checkpoint.npz").write_bytes(damaged)
    with pytest.raises(CheckpointError, match="overwrite"):
        stream(samples(), run_dir=folder, resume=True, **SETTINGS)
    (folder / "checkpoint.npz").write_bytes(before["checkpoint.npz"])
    assert {path.name: path.read_bytes() for path in folder.iterdir() if path.name != "run.log"} == before
    stream(samples(), run_dir=folder, resume=True, **SETTINGS)
    assert_same(folder, whole[0])


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"resume": True}, CheckpointError, "nothing to resume"),
        ({"checkpoint_s": -1}, ParameterError, "checkpoint_s=-1"),
        ({"tol": 0.1}, ParameterError, "'tol' is not a parameter of online learning"),
        ({"warm_up": 0}, ParameterError, "warm_up=0"),
        ({"classes": [0, 1]}, DataError, r"sample 2 \(0-based\) of the stream has the label 2"),
    ],
    ids=str,
)
def test_what_cannot_work_is_named(samples, tmp_path, options, error, said):
    with pytest.raises(error, match=said):
        stream(samples(), run_dir=tmp_path / "run", **SETTINGS | options)
    assert not (tmp_path / "run" / "checkpoint.npz").exists()
    with pytest.raises(ParameterError, match="give run_dir"):
        stream(samples(), resume=True, **SETTINGS)


@pytest.mark.parametrize("classes", [None, [0, 1, 2]], ids=["classes of the warm-up", "classes given"])
def test_a_budget_that_is_too_small_is_refused_before_anything_is_learned_or_lost(samples, whole, tmp_path, classes):
    for folder, overwrite in ((tmp_path / "new", False), (tmp_path / "old", True)):
        if overwrite:
            stream(samples(200), run_dir=folder, **SETTINGS)
        before = {path.name: path.read_bytes() for path in folder.glob("*") if path.name != "run.log"}
        with pytest.raises(BudgetError, match=r"at least .* is needed"):
            stream(
                samples(), run_dir=folder, overwrite=overwrite, classes=classes, **SETTINGS | {"memory_budget": "20MB"}
            )
        assert {path.name: path.read_bytes() for path in folder.glob("*") if path.name != "run.log"} == before
    with pytest.raises(ParameterError, match=r"already holds model\.mllkm and checkpoint\.npz"):
        stream(samples(), run_dir=tmp_path / "old", **SETTINGS)
    stream(samples(), run_dir=tmp_path / "old", overwrite=True, **SETTINGS)
    assert_same(tmp_path / "old", whole[0])


def test_samples_to_prepare_from_replace_the_first_ones(samples, digits, tmp_path):
    like = Dataset.from_arrays(digits[0])
    result = stream(samples(700), run_dir=tmp_path / "whole", like=like, **SETTINGS)
    expected = Preprocessor.fit(like, "standard").transform(digits[0][:5], np.float64)
    assert np.array_equal(result.model.preprocessor.transform(digits[0][:5], np.float64), expected)
    for polls in (1, 4, 100):
        assert interrupted(samples(700), tmp_path / "run", polls, like=like, resume=polls > 1) == (polls < 100)
    assert_same(tmp_path / "run", tmp_path / "whole")
    with pytest.raises(DataError, match="has 63 features, but the samples of the stream have 64"):
        stream(samples(700), like=Dataset.from_arrays(digits[0][:, 1:]), **SETTINGS)


def test_samples_out_of_reach_of_all_kernels_are_told_once(digits, tmp_path):
    X, y = digits
    unlike, told = np.where(np.arange(N)[:, None] < 500, X, X + 500.0), []
    stream(DatasetSamples(Dataset.from_arrays(unlike, y)), listener=told.append, **SETTINGS)
    [notice] = [event for event in told if isinstance(event, Notice)]
    assert "of the latest samples are out of reach of all kernels" in notice.text


def test_a_listener_that_fails_ends_the_stream_which_can_go_on(samples, whole, tmp_path):
    def fail(event):
        if isinstance(event, Streamed):
            raise OSError("no room for more news")

    with pytest.raises(OSError, match="no room"):
        stream(samples(), run_dir=tmp_path / "run", checkpoint_s=0, listener=fail, **SETTINGS)
    stream(samples(), run_dir=tmp_path / "run", resume=True, **SETTINGS)
    assert_same(tmp_path / "run", whole[0])


@pytest.mark.parametrize("n", [0, 100, 700])
def test_ctrl_c_while_samples_are_waited_for_keeps_those_that_came(digits, whole, tmp_path, n):
    X, y = digits
    waits = []

    def pairs():
        for start in range(0, n, 100):
            yield X[start : start + 100], y[start : start + 100]
        assert waits == [True]
        raise KeyboardInterrupt

    @contextmanager
    def waiting():
        waits.append(True)
        try:
            yield
        finally:
            waits.pop()

    said = f"after {n} samples: the checkpoint is written" if n else "before its first sample"
    with pytest.raises(InterruptedTraining, match=said):
        stream(IterableSamples(pairs()), run_dir=tmp_path / "run", waiting=waiting, **SETTINGS)
    assert (tmp_path / "run" / "checkpoint.npz").exists() == (n > 0)
    assert not (tmp_path / "run" / ".lock").exists()
    assert not waits
    stream(IterableSamples([(X, y)]), run_dir=tmp_path / "run", resume=n > 0, **SETTINGS)
    assert_same(tmp_path / "run", whole[0])


@pytest.mark.parametrize(("scaling", "columns"), [("quantile", 64), ("standard+quantile", None), ("auto", 64)])
def test_quantiles_are_those_of_the_warm_up_and_auto_is_standard(samples, digits, tmp_path, scaling, columns):
    stream(samples(400), run_dir=tmp_path / "run", scaling=scaling, **SETTINGS)
    prepared = Model.load(tmp_path / "run" / "model.mllkm").preprocessor
    like = "standard" if scaling == "auto" else scaling
    expected = Preprocessor.fit(Dataset.from_arrays(digits[0][:150]), like)
    np.testing.assert_array_equal(prepared.transform(digits[0]), expected.transform(digits[0]))
    assert prepared.n_features_out == (columns or expected.n_features_out)


def test_the_model_of_a_stream_knows_the_names_of_its_columns(tmp_path, digits):
    X, y = digits[0][:400, 10:14], digits[1][:400] % 2
    lines = [",".join([*map(str, row), str(label)]) for row, label in zip(X.tolist(), y.tolist(), strict=True)]
    settings = {"warm_up": 150, "gammas": [0.05], "n_jobs": 1, "report": False}
    (tmp_path / "a.csv").write_text("\n".join(["p,q,r,s,kind", *lines[:300]]) + "\n")
    with closing(open_samples(tmp_path / "a.csv")) as found:
        result = stream(found, run_dir=tmp_path / "run", **settings)
    assert result.model.feature_names == ("p", "q", "r", "s")
    (tmp_path / "a.csv").write_text("\n".join(["q,p,r,s,kind", *lines]) + "\n")
    with closing(open_samples(tmp_path / "a.csv")) as found, pytest.raises(DataError, match="give them in the same"):
        stream(found, run_dir=tmp_path / "run", resume=True, **settings)
    (tmp_path / "a.csv").write_text("\n".join(["p,q,r,s,kind", *lines]) + "\n")
    with closing(open_samples(tmp_path / "a.csv")) as found:
        assert stream(found, run_dir=tmp_path / "run", resume=True, **settings).model.feature_names[0] == "p"


def test_samples_to_prepare_from_are_matched_by_name(digits):
    X, y = digits[0][:400, 10:14] * [1, 10, 100, 1000], digits[1][:400] % 2
    data, names = {}, ["p", "q", "r", "s"]
    for order in ([0, 1, 2, 3], [3, 1, 0, 2]):
        like = Dataset.from_arrays(X[:, order], feature_names=[names[at] for at in order])
        source = DatasetSamples(Dataset.from_arrays(X, y, feature_names=names))
        data[tuple(order)] = stream(source, like=like, warm_up=150, gammas=[0.05], n_jobs=1).model
    one, other = data.values()
    np.testing.assert_array_equal(one.decision_function(X), other.decision_function(X))
