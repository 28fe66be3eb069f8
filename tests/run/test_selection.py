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
from mllkm_scale.base.events import Epoch, Notice, Phase, Round
from mllkm_scale.errors import CheckpointError, DataError, InterruptedTraining, ParameterError
from mllkm_scale.params import resolve
from mllkm_scale.plan.contenders import contenders
from mllkm_scale.run import training as training_module
from mllkm_scale.run.selection import Selection, Tried, _Walk, judged_by, load_selection

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
            at = walk.place
            if fold == 0:
                asked.append((walk.rival, at))
            return error(walk.rival, at) * len(walk.folds[fold].held)

        monkeypatch.setattr(_Walk, "mistakes", mistakes)
        return asked

    return arrange


@pytest.fixture
def winner(made_up):
    """Let learned kernels win, or all samples with bumps of all widths: others err more, and so do other strengths."""

    def arrange(kind):
        def error(rival, at):
            wins = rival.learned == (kind == LEARNED) and not rival.doubted
            return (0.1 if wins else 0.4) + 0.01 * abs(at - rival.first)

        return made_up(error)

    return arrange


def recorded(run):
    return json.loads((run / "run.json").read_text())


@given(st.floats(0, 1), st.integers(1, 10**6))
def test_a_kind_that_is_doubted_is_judged_half_a_standard_error_worse(error, n_held):
    assert judged_by(error, n_held) == pytest.approx(error + 0.5 * np.sqrt(error * (1 - error) / n_held))


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
        path = [one for one in found["tried"] if (one["anchors"], one["gammas"]) == kind_of(rival)]
        errors = [one["error"] for one in path]
        assert [one["judged"] for one in path] == [judged_by(e, wine.n_rows) if rival.doubted else e for e in errors]
        strengths = [one["ridge"] if rival.learned else one["C"] for one in path]
        places = [rival.strengths.index(strength) for strength in strengths]
        assert rival.first in places
        assert places == list(range(places[0], places[0] + len(places)))
        expected += [rival.at(strength) for strength in strengths]
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
    return rival.params.anchors, "wide" if rival.params.gammas == "wide" else None


RIVALS = contenders(resolve(), 700)


@dataclass(frozen=True)
class Room:
    """Stands for the plan."""

    inner_bytes: int = 0


def walk_of(rival, errors):
    """A contender with these errors so far, by places on its path."""
    walk = _Walk(rival, None, None, [], Room(), lambda: None)
    walk.errors = dict(errors)
    return walk


@st.composite
def walks(draw):
    """A contender with the errors of some neighbouring strengths, the first one among them."""
    rival = draw(st.sampled_from(RIVALS))
    low, high = draw(st.integers(0, rival.first)), draw(st.integers(rival.first, len(rival.strengths) - 1))
    return rival, {place: draw(st.floats(0, 1)) for place in range(low, high + 1)}


@given(walks(), st.integers(1, 10**6))
def test_a_walk_goes_to_a_neighbour_of_a_strength_that_is_not_clearly_worse(walk, n_held):
    rival, errors = walk
    found = walk_of(rival, errors)
    enough = judged_by(min(errors.values()), n_held)
    open_ends = [
        end + step
        for end, step in ((max(errors), 1), (min(errors), -1))
        if 0 <= end + step < len(rival.strengths) and errors[end] <= enough
    ]
    assert found.goes_on(n_held, 1.0) == bool(open_ends)
    assert not open_ends or found.place == open_ends[0]


def test_a_walk_begins_with_the_first_strength():
    for rival in RIVALS:
        walk = walk_of(rival, {})
        assert walk.goes_on(100, 0.0)
        assert walk.place == rival.first


@pytest.mark.parametrize(
    ("errors", "expected"),
    [([0.5], True), ([0.2, 0.219], True), ([0.2, 0.221], False), ([0.0, 0.001], False), ([0.3, 0.2], True)],
)
def test_a_walk_ends_by_half_a_standard_error(errors, expected):
    """With 100 rows and an error of 0.2 the standard error is 0.04."""
    assert walk_of(RIVALS[0], enumerate(errors)).goes_on(100, 1.0) == expected


@pytest.mark.parametrize(("best_of_all", "expected"), [(0.13, True), (0.1, False)])
def test_a_walk_that_is_two_standard_errors_behind_another_one_ends(best_of_all, expected):
    """With 100 rows and an error of 0.1 the standard error is 0.03."""
    assert walk_of(RIVALS[0], {0: 0.19}).goes_on(100, best_of_all) == expected


def test_contenders_go_on_one_wave_after_the_other_until_they_get_worse(wine, tmp_path, made_up):
    errors = {
        ("learned", None): {0: 0.2, 1: 0.4},
        ("all", "wide"): {1: 0.9},
        ("all", None): {1: 0.25, 2: 0.15, 3: 0.3},
    }
    asked = made_up(lambda rival, at: errors[kind_of(rival)][at])
    train(wine, run_dir=tmp_path / "run", **QUICK)
    learned, wide, usual = errors
    waves = [[(learned, 0), (wide, 1), (usual, 1)], [(learned, 1), (usual, 2)], [(usual, 3)]]
    assert [(kind_of(rival), at) for rival, at in asked] == list(chain(*waves))
    found = recorded(tmp_path / "run")["selection"]
    expected = [path[place] for path in errors.values() for place in sorted(path)]
    np.testing.assert_allclose([one["error"] for one in found["tried"]], expected, atol=1e-12)
    assert found["tried"][found["taken"]]["C"] == 3.0


def test_wide_bumps_that_win_are_those_of_the_model(wine, tmp_path, made_up):
    made_up(lambda rival, at: 0.1 if kind_of(rival)[1] == "wide" else 0.5)
    result = train(wine, run_dir=tmp_path / "run", **QUICK)
    assert recorded(tmp_path / "run")["parameters"]["gammas"] == "wide"
    usual = train(wine, anchors=SAMPLES, **QUICK).model
    assert result.model.certificate.n_open < usual.certificate.n_open


@pytest.mark.parametrize("kind", [LEARNED, SAMPLES])
def test_the_model_is_that_of_the_setting_that_wins(wine, tmp_path, winner, kind):
    winner(kind)
    result = train(wine, run_dir=tmp_path / "run", **QUICK)
    params = recorded(tmp_path / "run")["parameters"]
    assert (params["anchors"], params["metric"]) == (kind, "diagonal" if kind == LEARNED else None)
    assert (params["ridge"], params["C"]) == ((0.1, "auto") if kind == LEARNED else ("auto", 30.0))
    for name in SETTLED[:4]:
        assert result.model.certificate.params[name] == params[name]
    result.model.save(tmp_path / "auto.mllkm")
    given = {name: params[name] for name in SETTLED}
    train(wine, **QUICK | given).model.save(tmp_path / "given.mllkm")
    assert (tmp_path / "auto.mllkm").read_bytes() == (tmp_path / "given.mllkm").read_bytes()


@pytest.mark.parametrize(("error", "taken"), [(0.19, None), (0.1, "wide")])
def test_wide_bumps_must_be_clearly_better(wine, tmp_path, made_up, error, taken):
    """With 89 rows and errors of 0.2 half a standard error is 0.021."""
    made_up(lambda rival, at: error if rival.doubted else 0.2)
    train(wine, run_dir=tmp_path / "run", **QUICK)
    found = recorded(tmp_path / "run")["selection"]
    assert found["tried"][found["taken"]]["gammas"] == taken


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
        lambda text: text.replace('"taken": 3', '"taken": 9'),
        lambda text: text.replace('"taken": 3', '"taken": -1'),
        lambda text: text.replace('"taken": 3', '"taken": "6"'),
        lambda text: text.replace('"judged"', '"felt"'),
        lambda text: text.replace('"C": 30.0', '"C": 2.0'),
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
        Tried("learned:4", "auto", 2, strength, "auto", error=0.1 + 0.1 * at, judged=0.2)
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
    assert [(kind_of(rival), at) for rival, at in asked] == [(kind_of(rival), rival.first) for rival in rivals]
    found = recorded(tmp_path / "run")["selection"]
    assert [(one["anchors"], one["gammas"]) for one in found["tried"]] == [kind_of(rival) for rival in rivals]
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
    assert {rival.first for rival, _ in asked} <= {at for _, at in asked}
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
