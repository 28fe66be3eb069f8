"""Settings that compete on held-out rows: which one wins, where it is recorded, and that a resume keeps to it."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from itertools import chain

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mllkm_scale import Dataset, load_model, train, train_path
from mllkm_scale.errors import CheckpointError, DataError, InterruptedTraining, ParameterError
from mllkm_scale.params import resolve
from mllkm_scale.run import training as training_module
from mllkm_scale.run.events import Epoch, Notice, Phase, Round
from mllkm_scale.run.selection import Selection, Tried, _Walk, load_selection, smoothed
from mllkm_scale.run.settings import contenders

SETTLED = ("anchors", "scaling", "metric", "ridge", "C")
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
    """Let a strength of a contender err as a function of both says."""

    def arrange(error):
        asked = []

        def mistakes(walk, fold):
            at = len(walk.errors)
            if fold == 0:
                asked.append((walk.rival, at))
            return error(walk.rival, at) * len(walk.folds[fold].held)

        monkeypatch.setattr(_Walk, "mistakes", mistakes)
        return asked

    return arrange


@pytest.fixture
def winner(made_up):
    """Let learned kernels without a metric win, or all samples: the others err more, and so do later strengths."""

    def arrange(kind):
        def error(rival, at):
            wins = rival.params.metric is None and rival.learned == (kind == LEARNED)
            return (0.1 if wins else 0.4) + 0.01 * at

        return made_up(error)

    return arrange


def recorded(run):
    return json.loads((run / "run.json").read_text())


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_a_strength_is_judged_by_its_error_and_that_of_its_neighbours(errors):
    found = smoothed(errors)
    assert len(found) == len(errors)
    for at, error in enumerate(errors):
        before, after = errors[max(at - 1, 0)], errors[min(at + 1, len(errors) - 1)]
        assert found[at] == pytest.approx(error / 2 + before / 4 + after / 4, abs=2e-12)
    assert min(errors) - 1e-12 <= min(found) <= max(found) <= max(errors) + 1e-12


def test_errors_that_are_equal_on_paper_are_judged_equal():
    assert smoothed([0.1, 0.2, 0.3])[1] == smoothed([0.2, 0.2, 0.2])[1] == 0.2


def test_settings_are_tried_until_they_get_worse_and_the_one_that_is_judged_best_is_taken(wine, tmp_path):
    told = []
    result = train(wine, run_dir=tmp_path / "run", listener=told.append, **QUICK)
    found = recorded(tmp_path / "run")["selection"]
    assert json.loads((tmp_path / "run" / "selection.json").read_text()) == found
    rivals = contenders(resolve(**QUICK), wine.n_rows)
    taken = found["tried"][found["taken"]]
    assert taken["judged"] == min(one["judged"] for one in found["tried"])
    assert taken["error"] == min(one["error"] for one in found["tried"] if one["judged"] == taken["judged"])
    expected = []
    for rival in rivals:
        path = [one for one in found["tried"] if (one["anchors"], one["metric"]) == kind_of(rival)]
        errors = [one["error"] for one in path]
        assert [one["judged"] for one in path] == smoothed(errors)
        assert len(errors) == steps(rival, errors, wine.n_rows)
        expected += [rival.at(strength) for strength in rival.strengths[: len(path)]]
    assert [[one[name] for name in SETTLED] for one in found["tried"]] == [
        [getattr(params, name) for name in SETTLED] for params in expected
    ]
    held = wine.n_rows * np.array([one["error"] for one in found["tried"]])
    np.testing.assert_allclose(held, held.round(), atol=1e-9)
    assert taken["error"] < 0.2
    params = result.model.certificate.params
    assert [params[name] for name in SETTLED[:4]] == [taken[name] for name in SETTLED[:4]]
    assert taken["C"] in ("auto", params["C"])
    phases = [event.name for event in told if isinstance(event, Phase)]
    assert (phases[0], Counter(phases)["select"]) == ("select", 1)
    assert any("error on held-out rows" in event.text for event in told if isinstance(event, Notice))


def kind_of(rival):
    return rival.params.anchors, rival.params.metric


def steps(rival, errors, n_held):
    """Strengths that are tried of these errors: up to the first one that is worse than an earlier one by a doubt."""
    for at in range(1, len(errors)):
        best = min(errors[: at + 1])
        if errors[at] > best + 0.5 * np.sqrt(best * (1 - best) / n_held):
            return at + 1
    return len(rival.strengths)


RIVALS = contenders(resolve(), 700)


@dataclass(frozen=True)
class Room:
    """Stands for the plan."""

    inner_bytes: int = 0


def walk_of(rival, errors):
    """A contender with these errors so far."""
    walk = _Walk(rival, None, None, [], Room(), lambda: None)
    walk.errors = list(errors)
    return walk


@given(st.sampled_from(RIVALS), st.lists(st.floats(0, 1), max_size=3), st.integers(1, 10**6))
def test_a_walk_goes_on_while_strengths_are_left_and_the_last_is_not_clearly_worse(rival, errors, n_held):
    goes_on = walk_of(rival, errors).goes_on(n_held)
    if not errors:
        assert goes_on
    elif len(errors) == len(rival.strengths):
        assert not goes_on
    elif errors[-1] == min(errors):
        assert goes_on
    else:
        best = min(errors)
        assert goes_on == (errors[-1] <= best + 0.5 * np.sqrt(best * (1 - best) / n_held))


@pytest.mark.parametrize(
    ("errors", "expected"),
    [([], True), ([0.5], True), ([0.2, 0.219], True), ([0.2, 0.221], False), ([0.0, 0.001], False), ([0.3, 0.2], True)],
)
def test_a_walk_ends_by_half_a_standard_error(errors, expected):
    """With 100 rows and an error of 0.2 the standard error is 0.04."""
    assert walk_of(RIVALS[0], errors).goes_on(100) == expected


def test_contenders_that_get_worse_are_left_behind_and_the_others_go_on_one_wave_after_the_other(
    wine, tmp_path, made_up
):
    errors = {("learned", "diagonal"): [0.2, 0.4], ("learned", None): [0.5, 0.5, 0.6], ("all", None): [0.3, 0.1, 0.9]}
    asked = made_up(lambda rival, at: errors[kind_of(rival)][at])
    train(wine, run_dir=tmp_path / "run", **QUICK)
    diagonal, plain, samples = contenders(resolve(**QUICK), wine.n_rows)
    waves = [[diagonal, plain, samples], [diagonal, plain, samples], [plain, samples]]
    assert [(kind_of(rival), at) for rival, at in asked] == [
        (kind_of(rival), at) for at, wave in enumerate(waves) for rival in wave
    ]
    found = recorded(tmp_path / "run")["selection"]
    expected = list(chain(*errors.values()))
    np.testing.assert_allclose([one["error"] for one in found["tried"]], expected, atol=1e-12)


@pytest.mark.parametrize("kind", [LEARNED, SAMPLES])
def test_the_model_is_that_of_the_setting_that_wins(wine, tmp_path, winner, kind):
    winner(kind)
    result = train(wine, run_dir=tmp_path / "run", **QUICK)
    params = recorded(tmp_path / "run")["parameters"]
    assert (params["anchors"], params["metric"]) == (kind, None)
    assert (params["ridge"], params["C"]) == ((0.1, "auto") if kind == LEARNED else ("auto", 1.0))
    for name in SETTLED[:4]:
        assert result.model.certificate.params[name] == params[name]
    result.model.save(tmp_path / "auto.mllkm")
    given = {name: params[name] for name in SETTLED}
    train(wine, **QUICK | given).model.save(tmp_path / "given.mllkm")
    assert (tmp_path / "auto.mllkm").read_bytes() == (tmp_path / "given.mllkm").read_bytes()


def test_of_settings_that_are_judged_alike_the_one_with_the_smaller_error_is_taken(wine, tmp_path, made_up):
    errors = {("learned", "diagonal"): [0.2, 0.2, 0.2], ("learned", None): [0.3, 0.1, 0.3], ("all", None): [0.5] * 3}
    made_up(lambda rival, at: errors[kind_of(rival)][at])
    train(wine, run_dir=tmp_path / "run", **QUICK)
    assert recorded(tmp_path / "run")["selection"]["taken"] == 4


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
        lambda text: text.replace('"taken": 6', '"taken": 9'),
        lambda text: text.replace('"taken": 6', '"taken": -1'),
        lambda text: text.replace('"taken": 6', '"taken": "6"'),
        lambda text: text.replace('"judged"', '"felt"'),
        lambda text: text.replace('"C": 1.0', '"C": 2.0'),
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
        Tried("learned:4", "auto", 2, strength, "auto", error=0.1 + at, judged=0.2)
        for at, strength in enumerate(rivals[0].strengths)
    )
    found = Selection(tried, 1)
    assert Selection.from_dict(json.loads(json.dumps(found.as_dict())), rivals) == found
    settled = found.settled(resolve(tol=0.3))
    assert (settled.anchors, settled.metric, settled.ridge, settled.tol) == ("learned:4", 2, tried[1].ridge, 0.3)
    assert load_selection(tmp_path / "absent.json", rivals) is None


@pytest.mark.parametrize("kind", [LEARNED, SAMPLES])
def test_a_time_limit_that_is_over_ends_the_competition_after_the_first_wave(wine, tmp_path, winner, kind):
    asked = winner(kind)
    result = train(wine, run_dir=tmp_path / "run", time_limit=1e-9, **QUICK)
    rivals = contenders(resolve(**QUICK), wine.n_rows)
    assert [(kind_of(rival), at) for rival, at in asked] == [(kind_of(rival), 0) for rival in rivals]
    found = recorded(tmp_path / "run")["selection"]
    assert [(one["anchors"], one["metric"]) for one in found["tried"]] == [kind_of(rival) for rival in rivals]
    assert found["tried"][found["taken"]]["anchors"] == kind
    assert result.status == ("learned" if kind == LEARNED else "time_limit")


@pytest.mark.parametrize("classes", [60, 59], ids=["single rows", "a pair"])
def test_classes_with_single_rows_still_give_a_model(tmp_path, classes):
    X = np.random.default_rng(0).normal(size=(60, 2))
    result = train(
        Dataset.from_arrays(X, np.arange(60) % classes), run_dir=tmp_path / "run", **QUICK | {"max_rounds": 1}
    )
    assert load_model(tmp_path / "run" / "model.mllkm").n_kernels == result.model.n_kernels > 0
    if classes == 60:
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
    assert Counter(at for _, at in asked)[0] == 3
    assert len(set(asked)) == len(asked)
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
