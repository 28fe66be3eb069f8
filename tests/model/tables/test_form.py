"""Tables are used where they pay, are made once, and leave files, pickles and the direct form as they are."""

from __future__ import annotations

import copy
import gc
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import h5py
import numpy as np
import pytest
from click.testing import CliRunner

from mllkm_scale.cli import cli
from mllkm_scale.data import Dataset, Preprocessor
from mllkm_scale.data.preparation.scaling import Scaling
from mllkm_scale.errors import DataError
from mllkm_scale.kernels.maps import MAPS
from mllkm_scale.model import Model, evaluate, load_model, model_checksum, save_model
from mllkm_scale.model.model import DirectModel
from mllkm_scale.model.tables import form as forms
from mllkm_scale.model.tables.additive import AdditiveModel, compile_additive
from mllkm_scale.model.tables.form import MIN_KERNELS
from mllkm_scale.prediction import predict_file


@pytest.fixture(params=MAPS)
def model(request, make_model):
    return make_model(request.param, True, 0.3, ("a", "b", "c"), n_kernels=60, n_components=3)


@pytest.fixture
def rows():
    return np.random.default_rng(1).normal(size=(300, 4)) * 3


def test_tables_are_used_for_enough_component_wise_kernels(make_model):
    assert make_model("gaussian", True, n_kernels=MIN_KERNELS).form.tables is not None
    few = make_model("gaussian", True, n_kernels=MIN_KERNELS - 1).form
    assert few.tables is None
    assert few.reason == f"tables pay from {MIN_KERNELS} kernels on"
    assert make_model("gaussian", n_kernels=MIN_KERNELS).form.reason == "global kernels have no tables"


def test_every_way_to_predict_uses_the_tables(model, rows):
    tables = model.form.tables
    by_tables = tables.decide(model.preprocessor.transform(rows))
    scores = model.decision_function(rows)
    np.testing.assert_allclose(scores, by_tables, rtol=0, atol=1e-12)  # the projection differs in its last bits
    dataset = Dataset.from_arrays(rows, model.predict(rows), chunk_rows=70)
    np.testing.assert_array_equal(np.concatenate([f for _, f in model.decision_chunks(dataset)]), scores)
    np.testing.assert_array_equal(np.concatenate([p for _, p in model.predict_chunks(dataset)]), model.predict(rows))
    assert evaluate(model, dataset).error == 0.0


def test_the_direct_form_is_that_of_the_kernels_and_within_the_deviation(model, rows):
    direct = model.direct()
    assert isinstance(direct, DirectModel)
    assert direct.direct() is direct
    assert direct.form.tables is None
    assert direct.form.reason == "the direct form was asked for"
    kernels = model.family.kernels(model.anchors, model.gammas)
    expected = kernels.decide(model.preprocessor.transform(rows), model.coef, model.local_coef)
    np.testing.assert_allclose(direct.decision_function(rows), expected, rtol=1e-12, atol=1e-13)
    assert np.abs(direct.decision_function(rows) - model.decision_function(rows)).max() <= model.form.tables.deviation
    dataset = Dataset.from_arrays(rows, direct.predict(rows), chunk_rows=70)
    assert evaluate(direct, dataset).error == 0.0


def test_files_know_nothing_of_tables(model, rows, tmp_path):
    save_model(model, tmp_path / "before")
    checksum = model_checksum(model)
    scores = model.decision_function(rows)
    save_model(model, tmp_path / "after")
    save_model(model.direct(), tmp_path / "direct")
    before = (tmp_path / "before").read_bytes()
    assert (tmp_path / "after").read_bytes() == before
    assert (tmp_path / "direct").read_bytes() == before
    assert model_checksum(model) == model_checksum(model.direct()) == checksum
    loaded = load_model(tmp_path / "direct")
    assert type(loaded) is Model
    np.testing.assert_array_equal(loaded.decision_function(rows), scores)
    assert type(DirectModel.load(tmp_path / "after")) is DirectModel


def test_copies_and_pickles_decide_with_the_same_bits_and_carry_no_tables(model, rows):
    small = len(pickle.dumps(model))
    scores, direct = model.decision_function(rows), model.direct().decision_function(rows)
    assert len(pickle.dumps(model)) == small
    for clone in (copy.copy(model), copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        np.testing.assert_array_equal(clone.decision_function(rows), scores)
    again = pickle.loads(pickle.dumps(model.direct()))
    assert type(again) is DirectModel
    np.testing.assert_array_equal(again.decision_function(rows), direct)
    tables = pickle.loads(pickle.dumps(model.form.tables))
    Z = model.preprocessor.transform(rows)
    np.testing.assert_array_equal(tables.decide(Z), model.form.tables.decide(Z))


def test_tables_are_made_once_also_when_many_threads_ask_at_once(model, rows, monkeypatch):
    made = []

    def counted(*arguments):
        made.append(threading.get_ident())
        return compile_additive(*arguments)

    monkeypatch.setattr("mllkm_scale.model.tables.additive.compile_additive", counted)
    together = threading.Barrier(8)

    def ask(_):
        together.wait(timeout=30)
        return model.decision_function(rows, n_jobs=2), model.form.tables

    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(ask, range(8)))
    assert len(made) == 1
    for scores, tables in results:
        np.testing.assert_array_equal(scores, results[0][0])
        assert tables is results[0][1]


def test_tables_go_with_their_model(make_model):
    gc.collect()
    before = len(forms._slots)
    model = make_model("linear", True, n_kernels=60)
    assert model.form.tables is model.form.tables
    assert len(forms._slots) == before + 1
    del model
    gc.collect()
    assert len(forms._slots) == before


def test_what_cannot_be_tabulated_is_predicted_directly_and_says_why(make_model, rows, monkeypatch):
    model = make_model("gaussian", True, n_kernels=60)
    expected = model.direct().decision_function(rows)
    monkeypatch.setattr(compile_additive, "__kwdefaults__", {"max_bytes": 5_000})
    assert model.form.tables is None
    assert "no tables within 5" in model.form.reason
    np.testing.assert_array_equal(model.decision_function(rows), expected)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_values_that_are_not_finite_are_refused(model, rows, value):
    assert model.form.tables is not None
    rows[271, 2] = value
    with pytest.raises(DataError, match="at row 271, column 2 "):
        model.decision_function(rows)


@pytest.mark.parametrize("map", MAPS)
def test_rows_far_outside_are_finite_and_within_the_deviation(make_model, rows, map):
    for scaling in ("none", "standard", "minmax", "unit-norm"):
        model = make_model(map, True, 0.3, n_kernels=60, scaling=scaling)
        for factor in (1e3, 1e6, 1e100, 1e305):
            far = rows * factor
            by_tables, direct = model.decision_function(far), model.direct().decision_function(far)
            assert np.abs(by_tables - direct).max() <= model.form.tables.deviation
        mixed = np.where(np.arange(4) == 2, rows * 1e9, rows)
        difference = model.decision_function(mixed) - model.direct().decision_function(mixed)
        assert np.abs(difference).max() <= model.form.tables.deviation


def test_values_that_overflow_in_the_preparation_are_named_by_their_row(make_model):
    tenfold = Preprocessor(Scaling("standard", np.zeros(4), np.full(4, 10.0)))
    model = replace(make_model("linear", True, n_kernels=60), preprocessor=tenfold)
    X = np.zeros((5, 4))
    X[3, 1] = 1.7e308
    assert model.form.tables is not None
    with pytest.raises(DataError, match="too large to compute with at row 3 "):
        model.decision_function(X)
    for value in (np.nan, np.inf, -np.inf):
        assert np.isnan(model.form.tables.decide(np.full((1, 4), value))).all()


def test_files_are_predicted_by_tables_or_directly(make_model, rows, tmp_path):
    model = make_model("exponential", True, n_kernels=60)
    with h5py.File(tmp_path / "rows.h5", "w") as file:
        file["X"] = rows
    for name, used in {"tables": model, "direct": model.direct()}.items():
        summary = predict_file(used, tmp_path / "rows.h5", tmp_path / f"{name}.h5", scores=True)
        assert summary.model_checksum == model_checksum(model)
        with h5py.File(tmp_path / f"{name}.h5") as file:
            np.testing.assert_array_equal(file["scores"][:], used.decision_function(rows))


def test_the_command_line_predicts_directly_if_asked(make_model, rows, tmp_path):
    model = make_model("exponential", True, n_kernels=60)
    model.save(tmp_path / "a.mllkm")
    with h5py.File(tmp_path / "rows.h5", "w") as file:
        file["X"] = rows
    for flag, used in {"--direct": model.direct(), "--scores": model}.items():
        target = tmp_path / f"{flag[2:]}.h5"
        words = ["predict", tmp_path / "a.mllkm", tmp_path / "rows.h5", "--out", target, "--scores", flag]
        outcome = CliRunner().invoke(cli, [str(word) for word in words])
        assert outcome.exit_code == 0, outcome.output
        with h5py.File(target) as file:
            np.testing.assert_array_equal(file["scores"][:], used.decision_function(rows))


def test_the_executor_gets_the_form_that_was_asked_for(make_model, tmp_path):
    """Workers read the model from a file by the class of the one that was shared."""
    from mllkm_scale.cluster.exchange import Exchange

    model = make_model("exponential", True, n_kernels=60)
    exchange = Exchange(tmp_path)
    assert exchange.share("model", model).get().form.tables is not None
    assert exchange.share("model", model.direct()).get().form.tables is None


def test_prepared_rows_of_any_layout_and_type_have_the_same_bits(model):
    tables = model.form.tables
    assert isinstance(tables, AdditiveModel)
    Z = np.random.default_rng(1).integers(-3, 3, size=(20, 3))
    expected = tables.decide(Z.astype(np.float64))
    for rows in (Z, Z.astype(np.float32), np.asfortranarray(Z.astype(np.float64)), np.repeat(Z, 2, axis=0)[::2]):
        np.testing.assert_array_equal(tables.decide(rows), expected)
    assert tables.decide(np.zeros((0, 3))).shape == (0, 3)
