"""Training with learned kernels: certificates by brute force over all candidates, the same bits, what is refused."""

from __future__ import annotations

import json

import numpy as np
import pytest
from sklearn.base import clone

from mllkm_scale import Dataset, MLLKMClassifier, load_model, train, train_path
from mllkm_scale.base.events import Epoch, Notice
from mllkm_scale.errors import CheckpointError, InterruptedTraining, ParameterError
from mllkm_scale.learn.settings import RIDGE
from mllkm_scale.run.learning_file import LearningFile
from mllkm_scale.run.training import Training

ONE_SETTING = {"metric": "diagonal", "ridge": RIDGE, "scaling": "standard"}  # so that none compete
QUICK = ONE_SETTING | {"anchors": "learned:8", "C": 1.0, "tol": 0.02, "n_jobs": 1}


@pytest.fixture(autouse=True)
def few_epochs(monkeypatch):
    monkeypatch.setattr("mllkm_scale.learn.settings._MOST_EPOCHS", 20)


@pytest.fixture(scope="module")
def data(real_data):
    """X and y by the number of classes."""
    X, y = real_data("breast_cancer")
    rows = np.random.default_rng(0).permutation(len(y))[:160]
    wine = real_data("wine")
    return {2: (X[rows][:, :6], y[rows]), 3: (wine[0][:, :6], wine[1])}


@pytest.fixture
def problems(monkeypatch):
    """The problems that are trained on, as they were: with all candidates."""
    seen = []
    run_on = Training.run_on

    def watched(training, problem, dataset, resume):
        seen.append(problem)
        return run_on(training, problem, dataset, resume)

    monkeypatch.setattr(Training, "run_on", watched)
    return seen


def brute_force(mkl_reference, model, problem, duals, C, ovr=False):
    """P of the coefficients over all rows, and D of the duals over all candidates, by explicit features."""
    grid, family = problem.grid, problem.grid.family
    X = problem.data.rows(np.arange(problem.data.n_rows)).astype(np.float64)
    how = {"map": family.map, "componentwise": family.componentwise, "local_bias": family.local_bias}
    signs = problem.signs

    def features(anchors, gammas, scales):
        for anchor, gamma, scale in zip(anchors, gammas, scales, strict=True):
            yield np.sqrt(scale) * mkl_reference.kernel_features(X, anchor, gamma, **how)

    anchors = grid.anchors.rows(np.arange(grid.anchors.n_rows)).astype(np.float64)
    n_gammas = len(grid.gammas)
    candidates = [
        (grid.listed.anchors, grid.listed.gammas, grid.listed.scales),
        (np.repeat(anchors, n_gammas, axis=0), np.tile(grid.gammas, len(anchors)), grid.scales.ravel()),
    ]
    assert sum(np.count_nonzero(scales) for _, _, scales in candidates) == grid.n_open == model.certificate.n_open
    groups = [slice(k, k + 1) for k in range(signs.shape[1])] if ovr else [slice(None)]
    signed = duals * signs
    forms = [[np.sum((F.T @ signed[:, at]) ** 2) for at in groups] for c in candidates for F in features(*c)]
    dual = duals.sum() - 0.5 * np.max(forms, axis=0).sum()
    f, norms = np.zeros(signs.shape), np.zeros(len(groups))
    for m, F in enumerate(features(model.anchors, model.gammas, model.kernel_scale)):
        w = np.column_stack([model.coef[:, m], model.local_coef[:, m] / np.sqrt(family.local_bias)])
        w /= np.sqrt(model.kernel_scale[m])
        f += F @ w.T
        norms += [np.linalg.norm(w[at]) for at in groups]
    return 0.5 * np.sum(norms**2) + C * np.maximum(0.0, 1.0 - signs * f).sum(), dual


SETTINGS = [
    {"finish": "mkl"},
    {"finish": "none"},
    {"finish": "mkl", "anchors": "learned:8+all"},
    {"finish": "none", "anchors": "learned:8+all"},
    {"finish": "mkl", "multi_class": "ovr"},
    {"finish": "mkl", "componentwise": True},
    {"finish": "none", "componentwise": True, "map": "linear"},
    {"finish": "mkl", "metric": "full", "map": "exponential"},
    {"finish": "mkl", "metric": 2, "normalize": None},
    {"finish": "none", "metric": None, "scaling": "auto"},
    {"finish": "mkl", "max_kernels": 3, "tol": 1e-3},
]


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_the_certificate_is_the_one_that_brute_force_finds_over_all_candidates(
    mkl_reference, data, problems, settings, n_classes
):
    X, y = data[n_classes]
    result = train(Dataset.from_arrays(X, y), **QUICK | settings)
    [problem], certificate = problems, result.model.certificate
    assert (result.status == "learned") == (settings["finish"] == "none")
    assert (result.duals >= 0).all()
    assert (result.duals <= 1.0 + 1e-12).all()
    ovr = settings.get("multi_class") == "ovr"
    primal, dual = brute_force(mkl_reference, result.model, problem, result.duals, 1.0, ovr)
    assert certificate.primal == pytest.approx(primal, rel=1e-6)
    assert certificate.dual <= dual + 1e-6 * abs(primal)  # single precision errs to the safe side
    assert certificate.dual == pytest.approx(dual, abs=1e-3 * abs(primal))
    assert 0 <= certificate.dual <= certificate.primal
    assert result.model.weights.sum(axis=-1) == pytest.approx(1.0)
    if "max_kernels" in settings:
        assert result.model.n_kernels <= 3
    elif settings["finish"] == "mkl":
        assert result.status == "converged"
        assert certificate.gap <= 0.02


@pytest.mark.parametrize("finish", ["mkl", "none"])
@pytest.mark.parametrize("scaling", ["standard", "auto"])
def test_a_model_that_was_saved_loaded_and_served_says_the_same(tmp_path, data, finish, scaling):
    X, y = data[3]
    model = train(Dataset.from_arrays(X, y), **QUICK | {"finish": finish, "scaling": scaling}).model
    model.save(tmp_path / "a.mllkm")
    loaded = load_model(tmp_path / "a.mllkm")
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))
    np.testing.assert_array_equal(loaded.decision_function(X), model.decision_function(X))
    np.testing.assert_array_equal(loaded.predict(X[:1]), model.predict(X)[:1])
    assert np.mean(model.predict(X) == y) > 0.8
    assert loaded.certificate == model.certificate


@pytest.mark.parametrize(
    "settings",
    [{"C": "auto"}, {"finish": "none"}, {"anchors": "learned:8+all"}, {"finish": "mkl", "multi_class": "ovr"}],
    ids=str,
)
def test_threads_change_no_bit_of_the_model(monkeypatch, tmp_path, data, settings):
    monkeypatch.setattr("mllkm_scale.learn.descent._SHARED_FLOPS", 0)
    files = []
    for n_jobs in (1, 2):
        result = train(Dataset.from_arrays(*data[3]), **QUICK | settings | {"n_jobs": n_jobs})
        result.model.save(tmp_path / f"{n_jobs}.mllkm")
        files.append((tmp_path / f"{n_jobs}.mllkm").read_bytes())
    assert files[0] == files[1]


def test_rows_on_disk_give_the_same_model(tmp_path, data):
    import h5py

    X, y = data[3]
    with h5py.File(tmp_path / "train.h5", "w") as file:
        file["X"], file["y"] = X, y
    files = []
    for name, dataset in (("memory", Dataset.from_arrays(X, y)), ("disk", Dataset.open(tmp_path / "train.h5"))):
        train(dataset, **QUICK | {"C": "auto"}).model.save(tmp_path / name)
        files.append((tmp_path / name).read_bytes())
    assert files[0] == files[1]


class Stops:
    """Asks to stop at the polls of these numbers, over several trainings."""

    def __init__(self, *numbers):
        self.numbers, self.polls = numbers, 0

    def __call__(self):
        self.polls += 1
        return self.polls in self.numbers


def run_in_parts(dataset, run, stops, **settings):
    """Train until it is through, resumed as often as it is interrupted; what each interruption said."""
    said, resume = [], False
    while True:
        try:
            train(dataset, run_dir=run, resume=resume, should_stop=stops, **settings)
            return said
        except InterruptedTraining as error:
            said.append(str(error))
            resume = (run / "learning.npz").exists()


@pytest.mark.parametrize(
    "settings",
    [{"finish": "none"}, {"finish": "mkl"}, {"C": "auto"}, {"multi_class": "ovr", "finish": "mkl"}],
    ids=str,
)
def test_a_training_interrupted_anywhere_resumes_to_the_same_bits(tmp_path, data, settings):
    dataset, settings = Dataset.from_arrays(*data[3]), QUICK | settings
    counting = Stops()
    train(dataset, run_dir=tmp_path / "whole", should_stop=counting, **settings)
    # In the first epoch, in a later one, after the descent, and in rounds; polls of what is done again count, too.
    stops = Stops(1, 8, 60, 120, 230, 300, 370, 440)
    said = run_in_parts(dataset, tmp_path / "parts", stops, **settings)
    assert stops.polls > counting.polls
    assert len(said) >= 4
    assert "what was learned so far is kept" in said[1]
    for name in ("model.mllkm", "learning.npz"):
        assert (tmp_path / "parts" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    lines = [(tmp_path / kind / "learning.jsonl").read_text().splitlines() for kind in ("parts", "whole")]
    parts, whole = ([json.loads(line) for line in text] for text in lines)
    assert [epoch["number"] for epoch in parts] == list(range(1, 21))
    assert [epoch["loss"] for epoch in parts] == [epoch["loss"] for epoch in whole]


class Killed(BaseException):
    """Ends a training where it stands, as a kill does."""


@pytest.mark.parametrize("phase", ["choose", "train"])
def test_a_training_that_ends_between_learning_and_the_first_round_is_resumed(tmp_path, data, phase):
    dataset, settings = Dataset.from_arrays(*data[3]), QUICK | {"finish": "mkl"}
    train(dataset, run_dir=tmp_path / "whole", **settings)

    def die(event):
        if getattr(event, "name", "") == phase:
            raise Killed

    with pytest.raises(Killed):
        train(dataset, run_dir=tmp_path / "parts", listener=die, **settings)
    assert not (tmp_path / "parts" / "checkpoint.npz").exists()
    epochs = []
    train(dataset, run_dir=tmp_path / "parts", resume=True, listener=epochs.append, **settings)
    assert not [event for event in epochs if type(event).__name__ == "Epoch"]
    assert (tmp_path / "parts" / "model.mllkm").read_bytes() == (tmp_path / "whole" / "model.mllkm").read_bytes()


def test_an_epoch_that_was_told_or_saved_when_the_training_was_killed_is_there_once(tmp_path, data, monkeypatch):
    dataset, settings = Dataset.from_arrays(*data[2]), QUICK | {"finish": "none"}

    def die(event):
        if type(event).__name__ == "Epoch" and event.number == 3:
            raise Killed

    with pytest.raises(Killed):
        train(dataset, run_dir=tmp_path / "run", listener=die, **settings)
    save = LearningFile.save

    def dying(file, state):
        if state.place.epoch == 7:
            raise Killed
        save(file, state)

    monkeypatch.setattr(LearningFile, "save", dying)
    with pytest.raises(Killed):
        train(dataset, run_dir=tmp_path / "run", resume=True, **settings)
    monkeypatch.setattr(LearningFile, "save", save)
    train(dataset, run_dir=tmp_path / "run", resume=True, **settings)
    lines = (tmp_path / "run" / "learning.jsonl").read_text().splitlines()
    assert [json.loads(line)["number"] for line in lines] == list(range(1, 21))


def test_a_random_seed_is_the_same_after_a_resume(tmp_path, data):
    dataset, settings = Dataset.from_arrays(*data[2]), QUICK | {"finish": "none", "random_state": None}
    with pytest.raises(InterruptedTraining):
        train(dataset, run_dir=tmp_path / "run", should_stop=Stops(20), **settings)
    resumed = train(dataset, run_dir=tmp_path / "run", resume=True, **settings)
    whole = train(dataset, **settings | {"random_state": resumed.model.certificate.seed})
    np.testing.assert_array_equal(whole.model.coef, resumed.model.coef)


def test_a_descent_is_not_resumed_with_other_parameters_nor_replaced_unasked(tmp_path, data):
    dataset, settings = Dataset.from_arrays(*data[2]), QUICK | {"finish": "none"}
    run = tmp_path / "run"
    with pytest.raises(InterruptedTraining):
        train(dataset, run_dir=run, should_stop=Stops(20), **settings)
    for other in ({"metric": "full"}, {"max_kernels": 4}, {"anchors": "learned:9"}, {"random_state": 1}):
        with pytest.raises(CheckpointError, match="other parameters"):
            train(dataset, run_dir=run, resume=True, **settings | other)
    with pytest.raises(ParameterError, match=r"already holds learning\.npz"):
        train(dataset, run_dir=run, **settings)
    train(dataset, run_dir=run, resume=True, **settings | {"max_kernels": 100, "n_jobs": 2})
    assert train(dataset, run_dir=run, overwrite=True, **settings).status == "learned"


def test_a_damaged_descent_is_named(tmp_path, data):
    dataset, settings = Dataset.from_arrays(*data[2]), QUICK | {"finish": "none"}
    train(dataset, run_dir=tmp_path / "run", **settings)
    path = tmp_path / "run" / "learning.npz"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(CheckpointError, match=r"learning\.npz"):
        train(dataset, run_dir=tmp_path / "run", resume=True, **settings)


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"strategy": "paper"}, "strategy='paper'.*working-sets"),
        ({"finish": "none", "local_bias": 0}, "local_bias=0"),
        ({"metric": "round"}, "metric='round'"),
        ({"metric": 0}, "metric=0"),
        ({"metric": True}, "metric=True"),
        ({"metric": 7}, "metric=7.*6 features"),
        ({"metric": 6, "n_components": 0.5}, r"metric=6.*\d features"),
        ({"finish": "later"}, "finish='later'"),
        ({"anchors": "learned:0"}, "anchors='learned:0'"),
        ({"anchors": "learned:x"}, "anchors='learned:x'"),
        ({"anchors": "learned+some"}, "anchors=.learned.some"),
    ],
    ids=str,
)
def test_what_cannot_work_is_named_before_anything_is_learned(tmp_path, data, wrong, named):
    with pytest.raises(ParameterError, match=named):
        train(Dataset.from_arrays(*data[2]), run_dir=tmp_path / "run", **QUICK | wrong)
    assert not (tmp_path / "run" / "learning.npz").exists()


def test_a_metric_may_be_a_number_of_numpy(data):
    found = [train(Dataset.from_arrays(*data[2]), **QUICK | {"metric": metric}).model for metric in (2, np.int64(2))]
    np.testing.assert_array_equal(found[0].anchors, found[1].anchors)
    assert found[0].anchors.shape[1] == 2


@pytest.mark.parametrize("anchors", ["learned", "learned+all"])
@pytest.mark.parametrize("normalize", ["trace", None])
def test_samples_that_cannot_be_told_apart_still_give_a_certified_model(anchors, normalize):
    dataset = Dataset.from_arrays(np.ones((20, 3)), np.arange(20) % 2)
    result = train(dataset, anchors=anchors, normalize=normalize, local_bias=1.0, C=2.0, n_jobs=1)
    assert result.model.certificate.primal == pytest.approx(40.0, rel=0.01)


@pytest.mark.parametrize("finish", ["none", "mkl"])
@pytest.mark.parametrize(("beside", "n_anchors"), [("", 8), ("+5", 5), ("+all", None), ("+1000", None)])
def test_the_open_set_is_as_it_was_stated(data, finish, beside, n_anchors):
    X, y = data[3]
    settings = QUICK | {"finish": finish, "anchors": f"learned:8{beside}"}
    certificate = train(Dataset.from_arrays(X, y), **settings).model.certificate
    assert certificate.n_open == 8 + 4 * (len(X) if n_anchors is None else n_anchors)
    assert certificate.dual <= certificate.primal


@pytest.mark.parametrize("n", [2, 3, 10, 49])
def test_few_rows_are_learned_from(n):
    rng = np.random.default_rng(0)
    result = train(Dataset.from_arrays(rng.normal(size=(n, 2)), np.arange(n) % 2), anchors="learned", n_jobs=1)
    assert result.model.certificate.primal >= result.model.certificate.dual


@pytest.mark.parametrize("scale", [1e-6, 1e6])
@pytest.mark.parametrize("offset", [0.0, 1e4])
def test_neither_unit_nor_origin_of_the_features_matters(data, scale, offset):
    X, y = data[3]
    X = X / X.std(axis=0)
    settings = QUICK | {"scaling": "none", "finish": "mkl"}
    plain = train(Dataset.from_arrays(X, y), **settings).model
    moved = train(Dataset.from_arrays(scale * (X + offset), y), **settings).model
    assert moved.certificate.gap <= 0.02
    assert moved.certificate.primal == pytest.approx(plain.certificate.primal, rel=0.05)


def test_the_estimator_takes_learned_anchors(data):
    X, y = data[3]
    settings = QUICK | {"finish": "none", "metric": None}
    machine = clone(MLLKMClassifier(**settings)).fit(X, y)
    assert machine.score(X, y) > 0.8
    assert machine.anchors_.shape == (8, 6)
    assert machine.n_open_ >= 8


@pytest.mark.parametrize("along", [{"Cs": [0.1, 1.0, 10.0]}, {"kernel_counts": [6, 3, 1]}], ids=str)
def test_a_path_weighs_kernels_that_were_learned_once(data, along):
    X, y = data[3]
    learned = []

    def listen(event):
        if type(event).__name__ == "Epoch":
            learned.append(event.number)

    settings = QUICK | {"C": "auto"}
    path = train_path(Dataset.from_arrays(X, y), 0.3, listener=listen, **settings | along)
    assert learned == list(range(1, 21))
    Cs = [model.certificate.params["C"] for model in path.models]
    if "Cs" in along:
        assert Cs == [0.1, 1.0, 10.0]
        assert all(point.status == "converged" for point in path.points)
    else:
        assert len(set(Cs)) == 1
        assert Cs[0] in (0.1, 1.0, 10.0, 100.0)
        assert [point.n_kernels for point in path.points][1:] == [3, 1]
    assert all(0 <= point.gap < 1 for point in path.points)


@pytest.mark.parametrize("along", [{"Cs": [0.1, 1.0]}, {"kernel_counts": [6, 3]}], ids=str)
def test_a_path_interrupted_anywhere_resumes_to_the_same_models(tmp_path, data, along):
    dataset, settings = Dataset.from_arrays(*data[3]), QUICK | {"C": "auto"} | along
    whole = train_path(dataset, 0.3, run_dir=tmp_path / "whole", **settings)
    stops, resume, interrupted = Stops(50, 200, 420, 640), False, 0
    while True:
        try:
            train_path(dataset, 0.3, run_dir=tmp_path / "parts", resume=resume, should_stop=stops, **settings)
            break
        except InterruptedTraining:
            interrupted += 1
            resume = (tmp_path / "parts" / "path.json").exists()
    assert interrupted >= 2
    for point in whole.points:
        files = [(tmp_path / kind / point.name / "model.mllkm").read_bytes() for kind in ("whole", "parts")]
        assert files[0] == files[1]


def test_a_time_limit_shortens_the_descent_and_leaves_the_machine_as_learned():
    X = np.random.default_rng(0).normal(size=(4000, 4))
    y = (X[:, 0] * X[:, 1] > 0).astype(np.int64)
    told = []
    settings = ONE_SETTING | {"anchors": "learned:20", "time_limit": 1e-9, "n_jobs": 1}
    result = train(Dataset.from_arrays(X, y), listener=told.append, **settings)
    epochs = [event for event in told if isinstance(event, Epoch)]
    assert 1 < epochs[-1].number < epochs[-1].n_epochs  # some steps are taken in any case
    assert result.status == "learned"
    assert np.mean(result.model.predict(X) == y) > 0.8
    told_of = [event.text for event in told if isinstance(event, Notice) and "time limit" in event.text]
    assert any(f"{epochs[-1].number} of {epochs[-1].n_epochs} epochs were begun" in text for text in told_of)


@pytest.mark.parametrize("seed", [2**63, 2**64 + 5])
def test_any_seed_can_be_learned_with(seed):
    X, y = np.random.default_rng(0).normal(size=(80, 3)), np.arange(80) % 2
    given = {"anchors": "learned:5", "metric": None, "ridge": 1.0, "finish": "none", "n_jobs": 1}
    assert MLLKMClassifier(random_state=seed, **given).fit(X, y).status_ == "learned"
