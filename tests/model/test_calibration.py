"""Probabilities: fitted by held-out scores, a part of the model, and the same wherever they are computed."""

from __future__ import annotations

import csv
import ctypes
import json
import math
import shutil
import subprocess
from dataclasses import replace

import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from sklearn.isotonic import IsotonicRegression
from sklearn.metrics import log_loss

from mllkm_scale import Dataset, MLLKMClassifier, train
from mllkm_scale.base.files.archive import read_archive, write_archive
from mllkm_scale.errors import ModelFileError, ParameterError
from mllkm_scale.export import export_c, export_npz, export_onnx
from mllkm_scale.model import describe, evaluate, load_model, save_model
from mllkm_scale.model.calibration import Calibration, _isotonic, _temperature, fit_calibration
from mllkm_scale.model.evaluation import BINS
from mllkm_scale.model.files import KIND, VERSION
from mllkm_scale.prediction import predict_file

TEMPERATURE = Calibration("temperature", 1.7, n_rows=50, source="rows", log_loss=0.4)
ISOTONIC = Calibration("isotonic", 1.7, (-1.0, 0.25, 0.5, 2.0), (0.01, 0.4, 0.4, 0.99), 50, "rows", 0.4)


def drawn(n, odds, n_scores=1, seed=0):
    """Scores, and classes that are drawn by their probabilities."""
    rng = np.random.default_rng(seed)
    F = rng.normal(size=(n, n_scores)) * 2
    G = odds(F)
    p = 1 / (1 + np.exp(-G)) if n_scores == 1 else np.exp(G) / np.exp(G).sum(axis=1, keepdims=True)
    if n_scores == 1:
        return F, (rng.random(n) < p[:, 0]).astype(np.int64)
    return F, (rng.random((n, 1)) > np.cumsum(p, axis=1)).sum(axis=1).clip(max=n_scores - 1)


@pytest.mark.parametrize("n_scores", [1, 3])
def test_the_temperature_has_the_least_log_loss(n_scores):
    F, codes = drawn(600, lambda F: 1.3 * F, n_scores)
    fitted = fit_calibration(F, codes, "rows")
    assert fitted.method == "temperature"
    counts, c = np.bincount(codes), max(2, n_scores)
    own = ((counts + 1) / (counts + c))[codes]

    def loss(log_slope):
        F_ = F[:, 0] if n_scores == 1 else F
        log_p = Calibration("temperature", math.exp(log_slope)).log_probabilities(F_)
        true = log_p[np.arange(len(codes)), codes]
        return -(own * true + (1 - own) / (c - 1) * (log_p.sum(axis=1) - true)).mean()

    best = minimize_scalar(loss, bounds=(-3, 3), method="bounded", options={"xatol": 1e-10})
    assert math.log(fitted.slope) == pytest.approx(best.x, abs=1e-6)
    assert fitted.slope == pytest.approx(1.3, rel=0.2)


def test_the_rising_function_is_that_of_scikit_learn():
    F, codes = drawn(700, lambda F: F**3)
    F, weights = F[:, 0].round(2), np.random.default_rng(1).integers(1, 4, 700).astype(float)
    least = 1 / (len(F) + 2)
    reference = IsotonicRegression(y_min=least, y_max=1 - least, out_of_bounds="clip").fit(F, codes, weights)
    at = np.linspace(-9, 9, 500)
    np.testing.assert_allclose(_isotonic(F, codes, weights).probabilities(at)[:, 1], reference.predict(at), atol=1e-12)


def test_a_rising_function_is_taken_where_many_rows_show_that_it_is_better():
    bent = drawn(3000, lambda F: np.where(F > 0, 0.1 * F - 2, 3 * F - 2))
    assert fit_calibration(*bent, "rows").method == "isotonic"
    assert fit_calibration(*(part[:300] for part in bent), "rows").method == "temperature"
    assert fit_calibration(*drawn(3000, lambda F: 0.7 * F), "rows").method == "temperature"


@pytest.mark.parametrize("F", [np.zeros((9, 1)), np.full((9, 1), np.nan)])
def test_scores_that_tell_nothing_give_no_calibration(F):
    assert fit_calibration(F, np.arange(9) % 2, "rows") is None
    assert fit_calibration(np.ones((9, 1)), np.zeros(9, int), "rows") is None


@pytest.mark.parametrize("sign", [1, -1])
def test_scores_that_are_always_right_or_wrong_have_a_finite_slope(sign):
    codes = np.arange(40) % 2
    fitted = fit_calibration(sign * (2.0 * codes[:, None] - 1), codes, "rows")
    assert 0 < fitted.slope < 10


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=30), st.sampled_from([TEMPERATURE, ISOTONIC]))
def test_probabilities_add_up_to_one_and_rise_with_the_score(scores, calibration):
    F = np.sort(np.array(scores))
    p = calibration.probabilities(F)
    np.testing.assert_allclose(p.sum(axis=1), 1.0, atol=1e-12)
    assert (np.diff(p[:, 1]) >= 0).all()
    with np.errstate(divide="ignore"):
        np.testing.assert_allclose(np.exp(calibration.log_probabilities(F)), p, atol=1e-12)


def test_a_temperature_never_contradicts_the_label(make_model):
    for classes in ((0, 1), (0, 1, 2, 3)):
        model = replace(make_model(classes=classes), calibration=TEMPERATURE)
        X = np.random.default_rng(0).normal(size=(200, 4)) * 3
        assert (model.classes[model.predict_proba(X).argmax(axis=1)] == model.predict(X)).all()


@pytest.mark.parametrize("calibration", [TEMPERATURE, ISOTONIC, None])
def test_it_is_part_of_the_file_and_of_the_description(make_model, tmp_path, calibration):
    model = replace(make_model(), calibration=calibration)
    save_model(model, tmp_path / "a.mllkm")
    loaded = load_model(tmp_path / "a.mllkm")
    assert loaded.calibration == calibration
    facts = describe(loaded)
    said = {TEMPERATURE: "temperature", ISOTONIC: "isotonic, 4 knots", None: "no calibration"}[calibration]
    assert said in facts.as_text()
    assert json.loads(json.dumps(facts.as_dict()))["calibration"] == (calibration and calibration.as_dict())
    if calibration is None:
        with pytest.raises(ParameterError, match="no calibration, and so no probabilities: it was written by an older"):
            loaded.predict_proba(np.zeros((1, 4)))


@pytest.mark.parametrize(
    "broken",
    [
        {"slope": -1.0},
        {"slope": math.nan},
        {"method": "magic"},
        {"method": "isotonic", "knots": [0.0, 0.0], "levels": [0.1, 0.2]},
        {"method": "isotonic", "knots": [0.0, 1.0], "levels": [0.3, 0.2]},
        {"method": "isotonic", "knots": [0.0, 1.0], "levels": [0.0, 1.0]},
        {"method": "isotonic", "knots": [0.0], "levels": []},
        {"knots": [0.0], "levels": [0.5]},
        {"surprise": 1},
    ],
    ids=str,
)
def test_a_file_whose_calibration_is_none_is_refused(make_model, tmp_path, broken):
    model = replace(make_model(), calibration=TEMPERATURE)
    save_model(model, tmp_path / "a.mllkm")
    header, arrays = read_archive(tmp_path / "a.mllkm", kind=KIND, version=VERSION, error=ModelFileError)
    header["calibration"] |= broken
    write_archive(tmp_path / "a.mllkm", kind=KIND, version=VERSION, header=header, arrays=arrays)
    with pytest.raises(ModelFileError, match="holds no model that fits together"):
        load_model(tmp_path / "a.mllkm")


@pytest.mark.parametrize(("classes", "calibration"), [((0, 1), ISOTONIC), ((0, 1, 2), TEMPERATURE)])
def test_servers_give_those_of_the_model(make_model, classes, calibration):
    model = replace(make_model(classes=classes), calibration=calibration)
    X, server = np.random.default_rng(0).normal(size=(20, 4)), model.server()
    np.testing.assert_allclose([server.probabilities(x) for x in X], model.predict_proba(X), atol=1e-9)


def test_a_rising_function_of_many_classes_is_refused(make_model):
    with pytest.raises(ParameterError, match="for two classes"):
        replace(make_model(classes=(0, 1, 2)), calibration=ISOTONIC)


@pytest.mark.parametrize("classes", [("no", "yes"), (3, 5, 8)])
def test_evaluation_measures_probabilities(make_model, classes):
    model = replace(make_model(classes=classes), calibration=TEMPERATURE)
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(300, 4)) * 2, rng.choice(classes, 300)
    found, p = evaluate(model, Dataset.from_arrays(X, y, chunk_rows=70)), model.predict_proba(X)
    assert found.log_loss == pytest.approx(log_loss(y, p, labels=list(classes)))
    brier = np.square(p - (np.asarray(y)[:, None] == np.array(list(classes)))).sum(axis=1).mean()
    assert found.brier == pytest.approx(brier)
    right, largest = model.classes[p.argmax(axis=1)] == y, p.max(axis=1)
    bins = np.minimum((largest * BINS).astype(int), BINS - 1)
    off = [abs((right[bins == b] - largest[bins == b]).sum()) for b in range(BINS)]
    assert found.calibration_error == pytest.approx(sum(off) / len(y))
    drawn = np.random.default_rng(1).random((2000, 300)) < largest
    by_chance = np.mean([abs(np.bincount(bins, d - largest, minlength=BINS)).sum() for d in drawn]) / len(y)
    assert found.calibration_by_chance == pytest.approx(by_chance, rel=0.05)
    plain = evaluate(replace(model, calibration=None), Dataset.from_arrays(X, y))
    assert (plain.log_loss, plain.as_dict()["brier"]) == (None, None)
    assert (plain.confusion == found.confusion).all()


@pytest.mark.parametrize("classes", [("no", "yes"), (3, 5, 8)])
def test_evaluation_measures_by_the_weights_of_rows(make_model, classes):
    model = replace(make_model(classes=classes), calibration=TEMPERATURE)
    rng = np.random.default_rng(0)
    X, y, times = rng.normal(size=(300, 4)) * 2, rng.choice(classes, 300), rng.integers(0, 4, 300)
    found = evaluate(model, Dataset.from_arrays(X, y, sample_weight=0.1 * times, chunk_rows=70))
    repeated = evaluate(model, Dataset.from_arrays(np.repeat(X, times, axis=0), np.repeat(y, times)))
    assert found.weighted_error == pytest.approx(repeated.error)
    for name in ("log_loss", "brier", "calibration_error"):
        assert getattr(found, name) == pytest.approx(getattr(repeated, name))
    assert found.n == 300
    assert found.error == np.mean(model.predict(X) != y)


@pytest.mark.parametrize("kind", ["temperature", "isotonic"])
def test_a_weight_is_so_many_rows_of_a_calibration(kind):
    rng = np.random.default_rng(4)
    n, steep = (4000, 25.0) if kind == "isotonic" else (400, 1.0)
    F = rng.normal(size=n)
    p = 0.5 + 0.4 * np.tanh(steep * F)
    codes, times = (rng.random(n) < p).astype(int), rng.integers(1, 4, n)
    weighted = fit_calibration(F, codes, "rows", 7.0 * times)
    fit = {"temperature": _temperature, "isotonic": _isotonic}[kind]
    assert weighted.method == kind
    own = fit(F, codes, times / times.mean())
    assert weighted.slope == pytest.approx(own.slope)
    repeated = fit(np.repeat(F, times), np.repeat(codes, times), np.ones(times.sum()))
    assert own.slope == pytest.approx(repeated.slope, rel=0.02)  # targets are smoothed by the number of rows
    if kind == "isotonic":
        at = np.linspace(-2.0, 2.0, 41)
        np.testing.assert_allclose(weighted.probabilities(at), own.probabilities(at), atol=1e-9)
        np.testing.assert_allclose(own.probabilities(at), repeated.probabilities(at), atol=2e-3)


@pytest.mark.parametrize("calibration", [TEMPERATURE, ISOTONIC])
@pytest.mark.parametrize("scores", [False, True])
def test_files_get_them(make_model, tmp_path, calibration, scores):
    model = replace(make_model(classes=("no", "yes")), calibration=calibration)
    X = np.random.default_rng(0).normal(size=(50, 4))
    np.save(tmp_path / "a.npy", X)
    predict_file(model, tmp_path / "a.npy", tmp_path / "a.h5", probabilities=True, scores=scores)
    with h5py.File(tmp_path / "a.h5") as file:
        np.testing.assert_array_equal(file["probabilities"][:], model.predict_proba(X))
        assert ("scores" in file) == scores
        assert file["prediction"].asstr()[:].tolist() == model.predict(X).tolist()
    predict_file(model, tmp_path / "a.npy", tmp_path / "a.csv", probabilities=True, scores=scores)
    with (tmp_path / "a.csv").open() as file:
        rows = list(csv.reader(file))
    assert rows[0] == ["prediction", *["score_yes"] * scores, "probability_no", "probability_yes"]
    np.testing.assert_array_equal([[float(v) for v in row[-2:]] for row in rows[1:]], model.predict_proba(X))
    with pytest.raises(ParameterError, match="no calibration"):
        predict_file(replace(model, calibration=None), tmp_path / "a.npy", tmp_path / "b.csv", probabilities=True)
    assert not (tmp_path / "b.csv").exists()


@pytest.mark.parametrize(
    ("classes", "calibration"), [((0, 1), TEMPERATURE), ((0, 1), ISOTONIC), ((0, 1, 2), TEMPERATURE)]
)
@pytest.mark.parametrize("precision", ["mixed", "double", "single"])
def test_onnx_has_them(make_model, tmp_path, classes, calibration, precision):
    onnxruntime = pytest.importorskip("onnxruntime")
    model = replace(make_model(classes=classes), calibration=calibration)
    X = np.random.default_rng(0).normal(size=(80, 4)).astype(np.float32)
    export_onnx(model, tmp_path / "m.onnx", precision=precision)
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx")
    given_rows = X.astype(np.float64) if precision == "double" else X
    found = dict(zip([o.name for o in session.get_outputs()], session.run(None, {"features": given_rows}), strict=True))
    assert list(found) == ["label", "scores", "probabilities"]
    tolerance = {"mixed": 1e-6, "double": 1e-9, "single": 1e-4}[precision]
    np.testing.assert_allclose(found["probabilities"], model.predict_proba(X), atol=tolerance)


@pytest.mark.parametrize(
    ("classes", "calibration"), [((0, 1), TEMPERATURE), ((0, 1), ISOTONIC), ((0, 1, 2), TEMPERATURE)]
)
def test_c_has_them(make_model, tmp_path, classes, calibration):
    gcc = shutil.which("gcc")
    if gcc is None:
        pytest.skip("there is no gcc")
    model = replace(make_model(classes=classes), calibration=calibration)
    X = np.random.default_rng(0).normal(size=(80, 4)).astype(np.float32) * 2
    X[-1, 2] = np.nan
    export_c(model, tmp_path / "m.h")
    (tmp_path / "m.c").write_text(
        '#include "m.h"\nvoid run(long n, const float *x, float *p);\nvoid run(long n, const float *x, float *p)\n'
        "{ long i; for (i = 0; i < n; i++) mllkm_probabilities(x + i * 4, p + i * MLLKM_N_CLASSES); }\n"
    )
    flags = ["-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Werror", "-shared", "-fPIC", "-O1"]
    subprocess.run([gcc, *flags, tmp_path / "m.c", "-o", tmp_path / "m.so", "-lm"], check=True, timeout=120)
    p = np.empty((len(X), len(classes)), np.float32)
    pointers = [values.ctypes.data_as(ctypes.POINTER(ctypes.c_float)) for values in (X, p)]
    ctypes.CDLL(str(tmp_path / "m.so")).run(ctypes.c_long(len(X)), *pointers)
    np.testing.assert_allclose(p[:-1], model.predict_proba(X[:-1]), atol=1e-4)
    assert np.isnan(p[-1]).all()


@pytest.mark.parametrize(("classes", "calibration"), [((0, 1), ISOTONIC), ((0, 1, 2), TEMPERATURE), ((0, 1), None)])
def test_plain_arrays_describe_them(make_model, tmp_path, classes, calibration):
    model = replace(make_model(classes=classes), calibration=calibration)
    export_npz(model, tmp_path / "m.npz")
    about = json.loads((tmp_path / "m.json").read_text())
    if calibration is None:
        assert about["calibration"] is about["test_vectors"]["probabilities"] is None
        return
    assert about["calibration"]["method"] == calibration.method
    f = np.array(about["test_vectors"]["scores"])
    made = Calibration(**about["calibration"]).probabilities(f[:, 0] if f.shape[1] == 1 else f)
    np.testing.assert_allclose(about["test_vectors"]["probabilities"], made, atol=1e-12)


@pytest.mark.parametrize(
    ("settings", "source"),
    [
        ({}, "rows held out to choose"),
        ({"anchors": "all"}, "rows of 3 folds"),
        ({"anchors": "all", "multi_class": "ovr"}, "rows of 3 folds"),
        ({"anchors": "learned", "ridge": 8.0, "finish": "none"}, "rows of 3 folds"),
    ],
    ids=str,
)
def test_every_training_is_calibrated_by_rows_that_it_held_out(real_data, settings, source):
    X, y = real_data("wine")
    machine = MLLKMClassifier(n_jobs=1, tol=0.1, **settings).fit(X[::2], y[::2])
    assert source in machine.model_.calibration.source
    p = machine.predict_proba(X)
    assert p.shape == (len(X), 3)
    assert log_loss(y[1::2], p[1::2]) < 0.4
    np.testing.assert_allclose(np.exp(machine.predict_log_proba(X)), p, atol=1e-12)
    assert (machine.classes_[p.argmax(axis=1)] == machine.predict(X)).all()


def test_held_out_scores_are_less_sure_than_those_of_the_training():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 6))
    y = (X[:, 0] + rng.normal(size=300) > 0).astype(int)
    model = train(Dataset.from_arrays(X[:150], y[:150]), anchors="all", C=10.0, n_jobs=1).model
    by_training = fit_calibration(model.decision_function(X[:150])[:, None], y[:150], "training")
    assert model.calibration.slope < 0.7 * by_training.slope
    p = replace(model, calibration=by_training).predict_proba(X[150:])
    assert log_loss(y[150:], model.predict_proba(X[150:])) < log_loss(y[150:], p)


def test_a_class_with_single_rows_leaves_no_rows_to_calibrate_by():
    result = train(Dataset.from_arrays([[0.0], [1.0]], ["a", "b"]), n_jobs=1)
    with pytest.raises(ParameterError, match="without rows to hold out"):
        result.model.predict_proba([[0.5]])


def test_streams_are_calibrated_by_samples_before_they_are_learned(real_data):
    X, y = real_data("digits")
    machine = MLLKMClassifier(warm_up=300, n_jobs=1).partial_fit(X[:320], y[:320] % 3, classes=range(3))
    with pytest.raises(ParameterError, match="no probabilities yet: they need 100 samples"):
        machine.predict_proba(X[:5])
    machine.partial_fit(X[320:1400], y[320:1400] % 3)
    assert "before they were learned" in machine.model_.calibration.source
    assert log_loss(y[1400:] % 3, machine.predict_proba(X[1400:])) < 0.5
