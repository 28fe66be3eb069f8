"""A model file gives back the model, bit for bit, or a ModelFileError."""

from __future__ import annotations

import numpy as np
import pytest

from mllkm_scale.base.files.archive import read_archive, write_archive
from mllkm_scale.data.preparation.scaling import SCALINGS
from mllkm_scale.errors import ModelFileError, ScratchError
from mllkm_scale.kernels.maps import MAPS
from mllkm_scale.model import Model, load_model, model_checksum, save_model

LABELS = [
    (0, 1),
    (-1.5, 2.0),
    (False, True),
    ("cat", "état"),
    ("a", "b", "long label"),
    tuple(np.uint8([1, 7, 9])),
]


@pytest.fixture
def contents(make_model, tmp_path):
    """Header and arrays of a model file, to be tampered with."""
    save_model(make_model(classes=(1, 2, 3), n_components=2), tmp_path / "original")
    return read_archive(tmp_path / "original", kind="mllkm-model", version=1, error=ModelFileError)


def load_tampered(folder, header, arrays):
    write_archive(folder / "tampered", kind="mllkm-model", version=1, header=header, arrays=arrays)
    with pytest.raises(ModelFileError) as caught:
        load_model(folder / "tampered")
    message = str(caught.value)
    assert str(folder / "tampered") in message
    assert "\n" not in message
    return message


@pytest.mark.parametrize("classes", LABELS)
def test_saved_loaded_and_saved_again_gives_the_same_bytes_and_decisions(make_model, classes, tmp_path):
    model = make_model(classes=classes, local_bias=0.1)
    model.save(tmp_path / "a.mllkm")
    loaded = Model.load(tmp_path / "a.mllkm")
    save_model(loaded, tmp_path / "b.mllkm")
    assert (tmp_path / "a.mllkm").read_bytes() == (tmp_path / "b.mllkm").read_bytes()
    assert loaded.classes.dtype == model.classes.dtype
    assert loaded.classes.tolist() == list(classes)
    assert loaded.certificate == model.certificate
    X = np.random.default_rng(1).normal(size=(50, 4))
    np.testing.assert_array_equal(loaded.decision_function(X), model.decision_function(X))
    assert loaded.predict(X).tolist() == model.predict(X).tolist()


@pytest.mark.parametrize("scaling", SCALINGS)
@pytest.mark.parametrize("map", MAPS)
def test_every_family_and_preprocessing_decides_with_the_same_bits_after_loading(make_model, map, scaling, tmp_path):
    X = np.random.default_rng(1).normal(size=(50, 4))
    for componentwise in (False, True):
        model = make_model(
            map, componentwise, 0.2, (1, 2, 3), scaling=scaling, n_components=2, own_weights=componentwise
        )
        save_model(model, tmp_path / "a.mllkm")
        loaded = load_model(tmp_path / "a.mllkm")
        assert loaded.family == model.family
        np.testing.assert_array_equal(loaded.decision_function(X), model.decision_function(X))


@pytest.mark.parametrize("scaling", SCALINGS)
@pytest.mark.parametrize("n_components", [None, 3])
def test_a_folded_metric_is_in_the_file(make_model, scaling, n_components, tmp_path):
    X = np.random.default_rng(1).normal(size=(50, 4))
    model = make_model(scaling=scaling, n_components=n_components)
    p = model.preprocessor.n_features_out
    for prepared, d in [
        (model.preprocessor.scaled(np.linspace(1, 2, p), np.arange(p) != 1), p - 1),
        (model.preprocessor.mapped(np.eye(p)[:2] + 0.1), 2),
    ]:
        parts = {"anchors": model.anchors[:, :d], "coef": model.coef[:, :, :d], "preprocessor": prepared}
        folded = Model(**vars(model) | parts)
        save_model(folded, tmp_path / "a.mllkm")
        loaded = load_model(tmp_path / "a.mllkm")
        np.testing.assert_array_equal(loaded.decision_function(X), folded.decision_function(X))
        assert model_checksum(loaded) == model_checksum(folded)
        # A package that does not know of columns must not read the file as if there were none.
        with pytest.raises(ModelFileError, match="upgrade"):
            read_archive(tmp_path / "a.mllkm", kind="mllkm-model", version=1, error=ModelFileError)


@pytest.mark.parametrize("n_components", [None, 3])
@pytest.mark.parametrize("scaling", ["none", "standard", "minmax", "unit-norm"])
def test_plain_preparations_are_written_as_version_1(make_model, scaling, n_components, tmp_path):
    save_model(make_model(scaling=scaling, n_components=n_components), tmp_path / "a.mllkm")
    _, arrays = read_archive(tmp_path / "a.mllkm", kind="mllkm-model", version=1, error=ModelFileError)
    added = [f"projection_{name}" for name in ("mean", "components", "variances", "whiten")] if n_components else []
    names = {name for name in arrays if name.startswith(("scaling", "quantile", "projection"))}
    assert names == {"scaling_kind", "scaling_offset", "scaling_factor", *added}


def test_arrays_in_another_layout_give_the_same_file(make_model, tmp_path):
    model = make_model(classes=(1, 2, 3))
    fields = vars(model) | {
        "coef": np.asfortranarray(model.coef),
        "anchors": np.asfortranarray(model.anchors),
        "classes": np.array([1, 2, 3])[::1],
    }
    assert model_checksum(Model(**fields)) == model_checksum(model)


def test_the_checksum_tells_models_apart(make_model):
    assert model_checksum(make_model()) == model_checksum(make_model())
    assert model_checksum(make_model()) != model_checksum(make_model(local_bias=1e-9))


def test_labels_of_python_objects_are_kept_as_text(make_model, tmp_path):
    model = make_model(classes=np.array(["a", "b"], dtype=object))
    save_model(model, tmp_path / "a.mllkm")
    assert load_model(tmp_path / "a.mllkm").classes.tolist() == ["a", "b"]


def test_a_missing_or_damaged_file_is_named(make_model, tmp_path):
    path = tmp_path / "a.mllkm"
    with pytest.raises(ModelFileError, match=r"a\.mllkm does not exist"):
        load_model(path)
    save_model(make_model(), path)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(ModelFileError, match=r"a\.mllkm is damaged"):
        load_model(path)


def test_a_checkpoint_is_no_model(tmp_path):
    write_archive(tmp_path / "a", kind="mllkm-checkpoint", version=1, header={}, arrays={})
    with pytest.raises(ModelFileError, match="of kind 'mllkm-checkpoint': give one of kind 'mllkm-model'"):
        load_model(tmp_path / "a")


def test_a_folder_that_cannot_be_written_is_named(make_model, tmp_path):
    with pytest.raises(ScratchError, match="missing"):
        make_model().save(tmp_path / "missing" / "a.mllkm")


@pytest.mark.parametrize("name", ["classes", "anchors", "weights", "coef", "scaling_kind", "projection_mean"])
def test_a_missing_array_is_named(contents, name, tmp_path):
    header, arrays = contents
    del arrays[name]
    assert f"'{name}'" in load_tampered(tmp_path, header, arrays)


@pytest.mark.parametrize(
    "name", ["anchors", "gammas", "kernel_scale", "weights", "coef", "local_coef", "projection_components"]
)
def test_an_array_of_another_shape_or_with_nan_is_named(contents, name, tmp_path):
    header, arrays = contents
    # The number of kernels is that of the gammas: one gamma too few shows in the next array.
    blamed = "anchors" if name == "gammas" else name
    assert blamed in load_tampered(tmp_path, header, arrays | {name: arrays[name][..., :-1]})
    assert name in load_tampered(tmp_path, header, arrays | {name: arrays[name] * np.nan})
    assert name in load_tampered(tmp_path, header, arrays | {name: arrays[name].astype(str)})


@pytest.mark.parametrize(
    "header",
    [
        {},
        {"family": None},
        {"family": {"map": "round"}},
        {"family": {"map": ["gaussian"]}},
        {"certificate": {"primal": 1.0}},
        {"certificate": [1, 2]},
        {"certificate": "x"},
    ],
)
def test_a_header_that_makes_no_sense_is_refused(contents, header, tmp_path):
    intact, arrays = contents
    load_tampered(tmp_path, (intact | header) if header else {}, arrays)
