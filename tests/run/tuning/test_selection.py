"""Settings that compete on held-out rows: which one wins, where it is recorded, and that a resume keeps to it."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from mllkm_scale import Dataset, load_model, train, train_path
from mllkm_scale.base.events import Epoch, Notice, Phase, Round
from mllkm_scale.errors import CheckpointError, DataError, InterruptedTraining, ParameterError
from mllkm_scale.params import resolve
from mllkm_scale.plan.contenders import C_PER_OUTPUT, CHEAP_ROWS, FEW_ROWS, LEARNED_C, RIDGES, contenders
from mllkm_scale.run import training as training_module
from mllkm_scale.run.tuning import selection as selection_module
from mllkm_scale.run.tuning.folds import FOLDS, predicted, squared_losses
from mllkm_scale.run.tuning.selection import (
    DOUBT,
    SPARED,
    Selection,
    Tried,
    _in_the_race,
    certified_if_as_good,
    doubted,
    load_selection,
)

SETTLED = ("anchors", "scaling", "metric", "ridge", "C", "finish")
QUICK = {"n_jobs": 1, "tol": 0.05}
LEARNED, SAMPLES = "learned", "all"


@pytest.fixture(autouse=True)
def few_epochs(monkeypatch):
    monkeypatch.setattr("mllkm_scale.learn.settings._MOST_EPOCHS", 10)


@pytest.fixture(scope="module")
def wine(real_data):
    X, y = real_data("wine")
    return Dataset.from_arrays(X[::2, :5], y[::2])


@pytest.fixture
def made_up(monkeypatch):
    """Let a setting err on as many rows of a fold as a function says; `asked` are settings and folds in turn."""

    def arrange(error):
        asked = []

        def scores(dataset, codes, params, fold, *others):
            asked.append((params, fold))
            truth = codes[fold.held]
            said = np.where(np.arange(len(truth)) < round(error(params) * len(truth)), truth + 1, truth)
            return np.eye(codes.max() + 1)[said % (codes.max() + 1)]

        monkeypatch.setattr(selection_module, "_scores", scores)
        return asked

    return arrange


@pytest.fixture
def winner(made_up):
    """Let learned kernels in a metric win, or all samples with narrow bumps: all others err more."""

    def arrange(kind):
        learned, samples = (LEARNED, "auto", "diagonal", RIDGES[1], "none"), (SAMPLES, "narrow", None, "auto", "auto")
        best = {LEARNED: learned, SAMPLES: samples}[kind]
        return made_up(lambda rival: 0.1 if named(rival) == best else 0.4)

    return arrange


def named(rival):
    return rival.anchors, rival.gammas, rival.metric, rival.ridge, rival.finish


def recorded(run):
    return json.loads((run / "run.json").read_text())


LOSSES = arrays(np.float64, 12, elements=st.floats(0, 10))


ONES = np.ones(12)


@given(LOSSES, LOSSES, st.floats(0, 3))
def test_doubt_is_in_standard_errors_of_the_differences_on_the_same_rows(losses, others, doubt):
    expected = losses.mean() + doubt * np.std(losses - others) / np.sqrt(12)
    assert doubted(losses, others, doubt, ONES) == pytest.approx(expected)
    assert doubted(losses, losses, doubt, ONES) == losses.mean()
    assert doubted(losses, losses + 1.0, doubt, ONES) == pytest.approx(losses.mean())


@given(LOSSES, LOSSES, st.floats(0, 3), st.integers(1, 11))
def test_rows_without_weight_tell_nothing_of_a_setting(losses, others, doubt, n):
    weights = np.repeat([2.0, 0.0], [n, 12 - n])
    alone = doubted(losses[:n], others[:n], doubt, np.ones(n))
    assert doubted(losses, others, doubt, weights) == pytest.approx(alone)


def test_settings_that_differ_on_few_rows_are_told_apart_by_these():
    """Of 100 rows 40 are wrong in both: eight more are clearly more, though an error of 40 % has one of 5 %."""
    best = np.repeat([1.0, 0.0], [40, 60])
    some, clearly = np.repeat([1.0, 0.0], [43, 57]), np.repeat([1.0, 0.0], [48, 52])
    assert _in_the_race({0: best, 1: some, 2: clearly}, np.ones(100)) == [0, 1]


@given(st.dictionaries(st.integers(0, 9), LOSSES, min_size=1))
def test_the_best_is_always_in_the_race(wrong):
    assert min(wrong, key=lambda at: wrong[at].mean()) in _in_the_race(wrong, ONES)


def test_all_settings_are_tried_and_the_one_that_is_judged_best_is_taken(wine, tmp_path):
    told = []
    result = train(wine, run_dir=tmp_path / "run", listener=told.append, **QUICK)
    found = recorded(tmp_path / "run")["selection"]
    assert json.loads((tmp_path / "run" / "selection.json").read_text()) == found
    rivals = contenders(resolve(**QUICK), wine.n_rows, 3)
    assert [[one[name] for name in SETTLED] for one in found["tried"]] == [
        [getattr(rival, name) for name in SETTLED] for rival in rivals
    ]
    assert [one["gammas"] == "wide" for one in found["tried"]] == [rival.gammas == "wide" for rival in rivals]
    taken, whole = found["tried"][found["taken"]], [one for one in found["tried"] if one["rows"] == wine.n_rows]
    assert taken["rows"] == wine.n_rows
    assert taken["judged"] == min(one["judged"] for one in whole)
    assert all(one["judged"] == one["error"] for one in found["tried"])
    mistakes = np.array([one["rows"] * one["error"] for one in found["tried"]])
    np.testing.assert_allclose(mistakes, mistakes.round(), atol=1e-9)
    assert taken["error"] < 0.2
    params = result.model.certificate.params
    assert [params[name] for name in SETTLED[:4]] == [taken[name] for name in SETTLED[:4]]
    assert taken["C"] in ("auto", params["C"])
    phases = [event.name for event in told if isinstance(event, Phase)]
    assert (phases[:2], Counter(phases)["select"]) == (["check", "select"], 1)
    assert any("error on held-out rows" in event.text for event in told if isinstance(event, Notice))


def test_settings_that_are_clearly_behind_on_the_first_fold_are_not_tested_on_the_others(wine, tmp_path, made_up):
    asked = made_up(lambda rival: 0.7 if rival.anchors == SAMPLES else 0.1)
    train(wine, run_dir=tmp_path / "run", **QUICK)
    rivals = contenders(resolve(**QUICK), wine.n_rows)
    assert Counter(named(rival) for rival, _ in asked) == {
        named(rival): 1 if rival.anchors == SAMPLES else 3 for rival in rivals
    }
    first = len(asked[0][1].held)
    for one in recorded(tmp_path / "run")["selection"]["tried"]:
        assert one["rows"] == (first if one["anchors"] == SAMPLES else wine.n_rows)


def test_of_settings_that_err_and_lose_equally_the_first_of_mkl_is_taken(wine, tmp_path, made_up):
    made_up(lambda rival: 0.2)
    train(wine, run_dir=tmp_path / "run", **QUICK)
    found = recorded(tmp_path / "run")["selection"]
    by_mkl = [one["finish"] == "mkl" or one["anchors"] == SAMPLES for one in found["tried"]]
    assert found["taken"] == by_mkl.index(True) > 0


def test_of_settings_that_err_equally_the_one_with_less_log_loss_is_taken(wine, tmp_path, monkeypatch):
    noise = np.random.default_rng(0).normal(size=wine.n_rows)

    def scores(dataset, codes, params, fold, *others):
        sure = np.eye(3)[codes[fold.held]]
        return sure if params.anchors == SAMPLES and params.gammas == "wide" else sure * np.exp(noise[fold.held, None])

    monkeypatch.setattr(selection_module, "_scores", scores)
    train(wine, run_dir=tmp_path / "run", **QUICK)
    found = recorded(tmp_path / "run")["selection"]
    assert {one["error"] for one in found["tried"]} == {0.0}
    taken = found["tried"][found["taken"]]
    assert (taken["anchors"], taken["gammas"]) == (SAMPLES, "wide")


@pytest.mark.parametrize("anchors", [LEARNED, SAMPLES])
def test_wide_bumps_that_win_are_those_of_the_model(wine, tmp_path, made_up, anchors):
    made_up(lambda rival: 0.1 if (rival.anchors, rival.gammas) == (anchors, "wide") else 0.5)
    result = train(wine, run_dir=tmp_path / "run", **QUICK)
    assert recorded(tmp_path / "run")["parameters"]["gammas"] == "wide"
    usual = train(wine, **QUICK | {"anchors": anchors, "metric": None, "ridge": 128.0, "finish": "none"}).model
    if anchors == LEARNED:
        assert np.median(result.model.gammas) < np.median(usual.gammas)
    else:
        usual = train(wine, anchors=SAMPLES, **QUICK).model
        assert result.model.certificate.n_open < usual.certificate.n_open


@pytest.mark.parametrize("finish", ["none", "mkl"])
def test_how_to_finish_is_settled_by_what_wins(wine, tmp_path, made_up, finish):
    ridge = {"none": RIDGES[1], "mkl": RIDGES[0]}[finish]
    made_up(lambda rival: 0.1 if named(rival) == (LEARNED, "auto", "diagonal", ridge, finish) else 0.5)
    result = train(wine, run_dir=tmp_path / "run", **QUICK)
    run = recorded(tmp_path / "run")
    assert (run["parameters"]["finish"], run["choice"]["mkl"]) == (finish, finish == "mkl")
    assert "the best of the settings on held-out rows" in run["choice"]["reason"]
    assert run["choice"]["Cs"] == []  # nothing is held out once more
    assert finish == "none" or run["choice"]["C"] == LEARNED_C
    assert result.status == ("learned" if finish == "none" else "converged")


ALL_FOLDED = CHEAP_ROWS * FOLDS // (FOLDS - 1)  # rows of two classes up to which all folds are held out


def many_rows(n_rows):
    rng = np.random.default_rng(3)
    X = rng.normal(size=(n_rows, 3))
    return Dataset.from_arrays(X, (X[:, 0] + 0.5 * rng.normal(size=n_rows) > 0).astype(int))


def test_with_more_rows_settings_are_judged_by_squared_losses_on_all_folds(tmp_path, monkeypatch):
    dataset, rng, seen = many_rows(FEW_ROWS + 100), np.random.default_rng(0), {}

    def scores(dataset, codes, params, fold, *others):
        truth = 2.0 * codes[fold.held][:, None] - 1.0
        strength = 0.2 if params.anchors == SAMPLES else 1.05 if params.ridge == RIDGES[1] else 1.0
        F = strength * truth + rng.normal(size=truth.shape)
        seen.setdefault(named(params), []).append((F, codes[fold.held]))
        return F

    monkeypatch.setattr(selection_module, "_scores", scores)
    train(dataset, run_dir=tmp_path / "run", max_rounds=1, **QUICK)
    found = recorded(tmp_path / "run")["selection"]
    assert [one["rows"] < dataset.n_rows for one in found["tried"]] == [False] * 4 + [True]
    for one, parts in zip(found["tried"], seen.values(), strict=True):
        F, codes = np.concatenate([part[0] for part in parts]), np.concatenate([part[1] for part in parts])
        assert (one["rows"], one["error"]) == (len(F), np.mean(predicted(F) != codes))
        assert one["judged"] == pytest.approx(np.mean(squared_losses(F, codes, np.ones(len(codes)))))
    assert found["tried"][found["taken"]]["judged"] == min(one["judged"] for one in found["tried"])


def test_beyond_the_rows_of_a_comparison_settings_are_judged_with_doubt(tmp_path, monkeypatch):
    dataset, rng, seen = many_rows(ALL_FOLDED + 100), np.random.default_rng(0), {}

    def scores(dataset, codes, params, fold, *others):
        truth = 2.0 * codes[fold.held][:, None] - 1.0
        strength = {0: 1.0, 1: 1.02, 2: 2.0, 3: 0.5}[len(seen)]
        seen[len(seen)] = strength * truth + rng.normal(size=truth.shape), codes[fold.held]
        return seen[len(seen) - 1][0]

    monkeypatch.setattr(selection_module, "_scores", scores)
    train(dataset, run_dir=tmp_path / "run", max_rounds=1, **QUICK)
    found, losses = (
        recorded(tmp_path / "run")["selection"],
        [squared_losses(*one, np.ones(len(one[1]))) for one in seen.values()],
    )
    assert len(found["tried"]) == len(losses) == 4
    for one, (F, codes), own in zip(found["tried"], seen.values(), losses, strict=True):
        assert one["error"] == np.mean(predicted(F) != codes)
        assert one["judged"] == doubted(own, losses[0], DOUBT, np.ones(len(own)))
    assert found["taken"] == 2


def test_then_the_first_setting_wins_unless_another_one_is_clearly_better(tmp_path, monkeypatch):
    noise = np.random.default_rng(0).normal(size=(10**4, 4))

    def scores(dataset, codes, params, fold, *others):
        truth = 2.0 * codes[fold.held][:, None] - 1.0
        first = params.ridge == RIDGES[0]
        place = RIDGES.index(params.ridge)
        return (1.0 if first else 1.01) * truth + noise[: len(truth), [place]]

    monkeypatch.setattr(selection_module, "_scores", scores)
    train(many_rows(ALL_FOLDED + 100), run_dir=tmp_path / "run", max_rounds=1, **QUICK)
    assert recorded(tmp_path / "run")["selection"]["taken"] == 0


@pytest.mark.parametrize("kind", [LEARNED, SAMPLES])
def test_the_model_is_that_of_the_setting_that_wins(wine, tmp_path, winner, kind):
    winner(kind)
    result = train(wine, run_dir=tmp_path / "run", **QUICK)
    params = recorded(tmp_path / "run")["parameters"]
    assert (params["anchors"], params["metric"]) == (kind, "diagonal" if kind == LEARNED else None)
    assert (params["ridge"], params["C"]) == ((RIDGES[1], "auto") if kind == LEARNED else ("auto", 3 * C_PER_OUTPUT))
    for name in SETTLED[:4]:
        assert result.model.certificate.params[name] == params[name]
    given = train(wine, **QUICK | {name: params[name] for name in (*SETTLED, "gammas")}).model
    # The competition gives scores to calibrate by, which a training with given settings has to make anew.
    replace(result.model, calibration=None).save(tmp_path / "auto.mllkm")
    replace(given, calibration=None).save(tmp_path / "given.mllkm")
    assert (tmp_path / "auto.mllkm").read_bytes() == (tmp_path / "given.mllkm").read_bytes()


@pytest.mark.parametrize(
    "settings", [{"anchors": SAMPLES}, {"gammas": [0.1]}, {"metric": None, "ridge": 1.0, "finish": "none"}]
)
def test_where_nothing_is_left_open_nothing_competes(wine, tmp_path, monkeypatch, settings):
    monkeypatch.setattr(training_module, "select", lambda *_: pytest.fail("there is a single setting"))
    train(wine, run_dir=tmp_path / "run", **QUICK | settings)
    assert recorded(tmp_path / "run")["selection"] is None
    assert not (tmp_path / "run" / "selection.json").exists()


class Killed(BaseException):
    """Ends a training where it stands, as a kill does."""


def killed_at(kind, number):
    """A listener that ends the training at an event of a kind."""

    def listen(event):
        if isinstance(event, kind) and event.number == number:
            raise Killed

    return listen


@pytest.mark.parametrize(("kind", "event"), [(LEARNED, (Epoch, 4)), (SAMPLES, (Round, 2))], ids=[LEARNED, SAMPLES])
@pytest.mark.parametrize("seed", [3, None])
def test_a_resumed_training_keeps_to_the_selection_and_gives_the_same_bits(
    wine, tmp_path, monkeypatch, winner, kind, event, seed
):
    winner(kind)
    settings = QUICK | {"tol": 1e-3, "random_state": seed}
    with pytest.raises(Killed):
        train(wine, run_dir=tmp_path / "parts", listener=killed_at(*event), **settings)
    before = (tmp_path / "parts" / "selection.json").read_bytes()
    assert recorded(tmp_path / "parts")["selection"] == json.loads(before)
    with monkeypatch.context() as patch:
        patch.setattr(training_module, "select", lambda *_: pytest.fail("the settings have competed before"))
        resumed = train(wine, run_dir=tmp_path / "parts", resume=True, **settings)
    assert (tmp_path / "parts" / "selection.json").read_bytes() == before
    assert recorded(tmp_path / "parts")["selection"] == json.loads(before)
    train(wine, run_dir=tmp_path / "whole", **settings | {"random_state": resumed.model.certificate.seed})
    models = [(tmp_path / name / "model.mllkm").read_bytes() for name in ("parts", "whole")]
    assert models[0] == models[1]


def test_a_training_interrupted_anywhere_resumes_to_the_same_bits(wine, tmp_path):
    """Also while settings compete, where there is nothing yet to resume."""
    counted, polls = [0], [0]

    def count():
        counted[0] += 1
        return False

    train(wine, run_dir=tmp_path / "whole", should_stop=count, **QUICK)
    stops = {1, 40, counted[0] // 2 + 41, counted[0] + 20, 2 * counted[0] - 5, 2 * counted[0] + 50}

    def stop():
        polls[0] += 1
        return polls[0] in stops

    resume, interrupted, run = False, 0, tmp_path / "parts"
    while True:
        try:
            train(wine, run_dir=run, resume=resume, should_stop=stop, **QUICK)
            break
        except InterruptedTraining:
            interrupted += 1
            resume = (run / "learning.npz").exists() or (run / "checkpoint.npz").exists()
    assert interrupted >= 3
    for name in ("model.mllkm", "selection.json"):
        assert (run / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_an_interruption_while_settings_compete_keeps_the_training_that_was_to_be_replaced(wine, tmp_path):
    run = tmp_path / "run"
    train(wine, run_dir=run, anchors=SAMPLES, **QUICK)
    before = {path.name: path.read_bytes() for path in run.iterdir() if path.name != "run.log"}
    polls = iter(range(10**9))
    with pytest.raises(InterruptedTraining, match="no round had ended"):
        train(wine, run_dir=run, overwrite=True, should_stop=lambda: next(polls) == 30, **QUICK)
    assert {path.name: path.read_bytes() for path in run.iterdir() if path.name != "run.log"} == before


def test_a_training_that_begins_anew_has_a_selection_of_its_own(wine, tmp_path, winner):
    for kind in (LEARNED, SAMPLES):
        winner(kind)
        train(wine, run_dir=tmp_path / "run", overwrite=True, **QUICK)
        found = json.loads((tmp_path / "run" / "selection.json").read_text())
        assert found["tried"][found["taken"]]["anchors"] == kind
    train(wine, run_dir=tmp_path / "run", overwrite=True, anchors=SAMPLES, **QUICK)
    assert not (tmp_path / "run" / "selection.json").exists()


@pytest.fixture
def selected(wine, tmp_path, winner):
    """The run folder of a training for which all samples were selected."""
    winner(SAMPLES)
    train(wine, run_dir=tmp_path / "run", max_rounds=1, **QUICK)
    return tmp_path / "run"


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: "",
        lambda text: text[:-20],
        lambda text: "[]",
        lambda text: "null",
        lambda text: "{}",
        lambda text: text.replace('"taken": 5', '"taken": 9'),
        lambda text: text.replace('"taken": 5', '"taken": -1'),
        lambda text: text.replace('"taken": 5', '"taken": "6"'),
        lambda text: text.replace('"judged"', '"felt"'),
        lambda text: text.replace('"C": 9.0', '"C": 2.0'),
        lambda text: json.dumps({"tried": [], "taken": 0}),
    ],
)
def test_a_damaged_selection_is_named(wine, selected, damage):
    path = selected / "selection.json"
    text = path.read_text()
    assert damage(text) != text
    path.write_text(damage(text))
    model = (selected / "model.mllkm").read_bytes()
    with pytest.raises(CheckpointError, match=r"selection\.json is damaged"):
        train(wine, run_dir=selected, resume=True, **QUICK)
    assert (selected / "model.mllkm").read_bytes() == model


def test_a_selection_that_is_no_text_is_named(wine, selected):
    (selected / "selection.json").write_bytes(b"\xff\xfe\x00{")
    with pytest.raises(CheckpointError, match=r"selection\.json is damaged"):
        train(wine, run_dir=selected, resume=True, **QUICK)


@pytest.mark.parametrize(
    "other", [{"C": 3.0}, {"scaling": "minmax"}, {"anchors": "learned:5"}, {"finish": "mkl"}], ids=str
)
def test_a_selection_for_other_parameters_is_named(wine, selected, other):
    with pytest.raises(CheckpointError, match=r"selection\.json.*other parameters"):
        train(wine, run_dir=selected, resume=True, **QUICK | other)


def test_a_selection_is_the_same_after_json(tmp_path):
    rivals = contenders(resolve(anchors="learned:4", metric=2), 700)
    tried = tuple(
        Tried(**selection_module._setting(rival), error=0.1 + 0.1 * at, judged=0.2, rows=700)
        for at, rival in enumerate(rivals)
    )
    found = Selection(tried, 1)
    assert Selection.from_dict(json.loads(json.dumps(found.as_dict())), rivals) == found
    settled = found.settled(resolve(tol=0.3))
    assert (settled.anchors, settled.metric, settled.ridge, settled.tol) == ("learned:4", 2, tried[1].ridge, 0.3)
    assert load_selection(tmp_path / "absent.json", rivals) is None


@pytest.mark.parametrize("name", ["text", "narrow", "all"])
def test_bumps_that_do_not_compete_are_refused(name):
    rivals = contenders(resolve(anchors="learned:4", metric=2, **QUICK), 178)
    own = Tried("learned:4", rivals[0].scaling, 2, rivals[0].ridge, rivals[0].C, 0.1, 0.1, None, rivals[0].finish, 178)
    found = Selection((own,), 0)
    assert Selection.from_dict(json.loads(json.dumps(found.as_dict())), rivals) == found
    crafted = replace(found, tried=(replace(own, gammas=name),))
    with pytest.raises(ValueError, match="none of the settings that compete here"):
        Selection.from_dict(json.loads(json.dumps(crafted.as_dict())), rivals)


def test_after_the_time_limit_only_the_first_setting_is_tried(wine, tmp_path, made_up):
    asked = made_up(lambda rival: 0.2)
    result = train(wine, run_dir=tmp_path / "run", time_limit=1e-9, **QUICK)
    first = contenders(resolve(**QUICK), wine.n_rows)[0]
    assert {named(rival) for rival, _ in asked} == {named(first)}
    [one] = recorded(tmp_path / "run")["selection"]["tried"]
    assert (one["anchors"], one["ridge"], one["rows"]) == (LEARNED, RIDGES[1], wine.n_rows)
    assert result.status == "learned"


def test_all_samples_of_too_many_classes_take_no_part(wine, tmp_path, monkeypatch, made_up):
    asked = made_up(lambda rival: 0.2)
    monkeypatch.setattr(selection_module, "MOST_SIGNS", 3 * wine.n_rows - 1)
    train(wine, run_dir=tmp_path / "run", **QUICK)
    assert {rival.anchors for rival, _ in asked} == {LEARNED}


def test_a_machine_that_is_too_dear_to_be_weighed_takes_no_part(wine, tmp_path, monkeypatch):
    monkeypatch.setattr(selection_module, "MOST_MKL_FLOPS", 0.0)
    train(wine, run_dir=tmp_path / "run", **QUICK)
    found = recorded(tmp_path / "run")["selection"]["tried"]
    assert len(found) == len(contenders(resolve(**QUICK), wine.n_rows)) - 1
    assert "mkl" not in {one["finish"] for one in found}


@pytest.mark.parametrize("classes", [30, 29], ids=["single rows", "a pair"])
def test_classes_with_single_rows_still_give_a_model(tmp_path, classes):
    X = np.random.default_rng(0).normal(size=(30, 2))
    result = train(
        Dataset.from_arrays(X, np.arange(30) % classes), run_dir=tmp_path / "run", **QUICK | {"max_rounds": 1}
    )
    assert load_model(tmp_path / "run" / "model.mllkm").n_kernels == result.model.n_kernels > 0
    if classes == 30:
        assert recorded(tmp_path / "run")["selection"] is None
        assert result.model.certificate.params["anchors"] == SAMPLES


def test_a_class_with_a_single_row_among_others_is_no_hindrance(wine, tmp_path):
    y = wine.labels().copy()
    y[7] = 9
    dataset = Dataset.from_arrays(wine.rows(np.arange(wine.n_rows)), y)
    result = train(dataset, run_dir=tmp_path / "run", **QUICK)
    assert recorded(tmp_path / "run")["selection"]["tried"]
    assert list(result.model.classes) == [0, 1, 2, 9]


def test_a_value_that_is_none_is_named_by_its_row_in_all_data(wine, tmp_path):
    X = wine.rows(np.arange(wine.n_rows)).copy()
    X[57, 2] = np.nan
    with pytest.raises(DataError, match=r"row 57.*column 2"):
        train(Dataset.from_arrays(X, wine.labels()), run_dir=tmp_path / "run", **QUICK)
    assert not (tmp_path / "run" / "selection.json").exists()


def test_threads_change_no_bit(wine, tmp_path, monkeypatch):
    monkeypatch.setattr("mllkm_scale.learn.descent._SHARED_FLOPS", 0)
    for n_jobs in (1, 2):
        train(wine, run_dir=tmp_path / str(n_jobs), **QUICK | {"n_jobs": n_jobs})
    for name in ("model.mllkm", "selection.json"):
        assert (tmp_path / "1" / name).read_bytes() == (tmp_path / "2" / name).read_bytes()


@pytest.mark.parametrize("kind", [LEARNED, SAMPLES])
def test_all_models_of_a_path_have_the_setting_that_wins(wine, winner, kind):
    asked = winner(kind)
    path = train_path(wine, 0.3, Cs=[0.5, 2.0], **QUICK)
    every = [(named(rival), tuple(fold.held)) for rival, fold in asked]
    assert len(set(every)) == len(every)
    assert [model.certificate.params["anchors"] for model in path.models] == [kind, kind]
    assert [model.certificate.params["C"] for model in path.models] == [0.5, 2.0]


@pytest.mark.parametrize("kind", [LEARNED, SAMPLES])
def test_a_resumed_training_may_have_fewer_kernels_whatever_was_selected(wine, tmp_path, winner, kind):
    """As `max_kernels` does not shape the problem."""
    winner(kind)
    train(wine, run_dir=tmp_path / "run", max_rounds=1, **QUICK)
    resumed = train(wine, run_dir=tmp_path / "run", resume=True, max_kernels=60, **QUICK)
    assert resumed.model.certificate.params["anchors"] == kind


@pytest.mark.parametrize("fixed", [{"strategy": "paper"}, {"local_bias": 0}], ids=str)
def test_a_machine_as_learned_that_cannot_be_is_refused_before_anything_is_learned(wine, tmp_path, fixed):
    told = []
    with pytest.raises(ParameterError, match=next(iter(fixed))):
        train(wine, run_dir=tmp_path / "run", finish="none", listener=told.append, **QUICK | fixed)
    assert not [event for event in told if isinstance(event, Phase) and event.name in ("select", "learn")]


ERRORS = st.integers(0, 400).map(lambda wrong: wrong / 400)


@given(
    errors=st.lists(ERRORS, min_size=6, max_size=6), rows=st.lists(st.sampled_from([130, 400]), min_size=6, max_size=6)
)
def test_machines_of_mkl_win_if_their_error_is_about_the_lowest(errors, rows):
    kinds = [("learned", "none")] * 3 + [("learned", "mkl"), ("all", "auto"), ("kmeans:5", "auto")]
    tried = [
        Tried(anchors, "auto", None, 8.0, 1.0, error, error, finish=finish, rows=number)
        for (anchors, finish), error, number in zip(kinds, errors, rows, strict=True)
    ]
    best = min(range(6), key=lambda at: (-rows[at], errors[at]))
    places = certified_if_as_good(tried, best, rows[best])
    least = max(errors[best], 1 / rows[best])
    allowed = errors[best] + SPARED * np.sqrt(least * (1 - least) / rows[best])
    as_good = [at for at in range(3, 6) if rows[at] == rows[best] and errors[at] <= allowed]
    assert places == (as_good or [best])
    assert all(errors[at] <= allowed for at in places)
