"""The plane of the anchors: what it decides is what the model decides there; shape functions and images."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from mllkm_scale import Dataset, load_model, train
from mllkm_scale.data.image_shape import read_image_shape
from mllkm_scale.errors import ParameterError
from mllkm_scale.report.kernels import anchor_images
from mllkm_scale.report.regions import anchor_regions, class_codes, pixels_that_pay, plane_of
from mllkm_scale.report.shape_pictures import shape_section


@pytest.fixture(scope="module")
def models(real_data, digits_run, additive_run):
    X, y = real_data("iris")
    settings = {"anchors": "all", "tol": 0.2, "n_jobs": 1}
    two = train(Dataset.from_arrays(X[:, 2:], y), **settings).model
    unit = train(Dataset.from_arrays(X, y), scaling="unit-norm", **settings).model
    one = train(Dataset.from_arrays(X[:, 2:3], y), **settings).model
    digits, additive = load_model(digits_run / "model.mllkm"), load_model(additive_run / "model.mllkm")
    return {"two features": two, "unit norm": unit, "one": one, "projected": digits, "component-wise": additive}


@pytest.mark.parametrize("name", ["two features", "projected", "component-wise"])
def test_the_regions_are_what_the_model_decides_at_the_points_of_the_plane(models, name):
    model = models[name]
    plane = plane_of(model)
    coordinates = np.random.default_rng(0).normal(size=(300, 2)) * np.ptp(model.anchors) / 4
    expected = model.predict(model.preprocessor.invert(plane.points(coordinates)))
    found = model.classes[class_codes(model, plane, coordinates)]
    assert (found == expected).mean() > 0.995  # a point on a border may fall to either side by its last bits


def test_the_plane_holds_as_much_of_the_anchors_as_two_directions_can(models):
    model = models["projected"]
    plane, weights = plane_of(model), model.weights / model.weights.sum()
    np.testing.assert_allclose(plane.directions @ plane.directions.T, np.eye(2), atol=1e-9)
    centred = (model.anchors - weights @ model.anchors) * np.sqrt(weights)[:, None]
    singular = np.linalg.svd(centred, compute_uv=False) ** 2
    assert plane.share == pytest.approx(singular[:2].sum() / singular.sum())
    assert (np.square(centred @ plane.directions.T).sum() / singular.sum()) == pytest.approx(plane.share)


@pytest.mark.parametrize("name", ["two features", "unit norm", "one", "projected", "component-wise"])
def test_every_model_has_a_picture_of_its_anchors(models, name):
    picture = anchor_regions(models[name], None)
    assert picture.source.startswith("data:image/")
    assert picture.caption


def test_the_plane_of_many_features_takes_little_memory():
    X = np.random.default_rng(0).normal(size=(20, 6000))
    model = train(Dataset.from_arrays(X, np.arange(20) % 2), anchors="all", max_rounds=1, n_jobs=1).model
    tracemalloc.start()
    plane = plane_of(model)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    np.testing.assert_allclose(plane.directions @ plane.directions.T, np.eye(2), atol=1e-9)
    assert peak < 20 * X.nbytes


def test_a_plane_without_extent_is_still_a_plane(models):
    from dataclasses import replace

    model = models["unit norm"]
    alike = replace(model, anchors=np.repeat(model.anchors[:1], model.n_kernels, axis=0))
    plane = plane_of(alike)
    np.testing.assert_allclose(plane.directions @ plane.directions.T, np.eye(2), atol=1e-9)
    assert anchor_regions(alike, None).source


def test_a_component_wise_machine_that_is_dear_to_evaluate_gets_fewer_pixels(models):
    assert pixels_that_pay(models["projected"]) == pixels_that_pay(models["two features"])
    assert 0 < pixels_that_pay(models["component-wise"]) <= pixels_that_pay(models["projected"])


def test_the_most_important_features_come_first(models):
    model = models["component-wise"]
    section = shape_section(model, None)
    shares = [float(picture.caption.split(": ")[1].split(" %")[0]) for picture in section.pictures]
    assert shares == sorted(shares, reverse=True)
    assert sum(shares) == pytest.approx(100, abs=4)
    spread = [
        np.std(model.shape_function(l, np.quantile(model.anchors[:, l], np.linspace(0, 1, 64)))) for l in range(7)
    ]
    assert section.pictures[0].alt == f"Shape function of feature {int(np.argmax(spread))}"


def test_images_of_colours_are_drawn_too(real_data):
    X, y = real_data("digits")
    result = train(Dataset.from_arrays(X[:100, :48], y[:100] % 3), anchors="all", tol=0.3, n_jobs=1)
    assert "4x4x3" in anchor_images(result.model, (4, 4, 3)).alt


@pytest.mark.parametrize("text", ["28", "28x", "0x4", "a x b", "4x4x2", "4x4x3x1", ""])
def test_a_shape_that_is_none_is_refused_with_an_example(text):
    with pytest.raises(ParameterError, match="give height and width such as 28x28"):
        read_image_shape(text)


def test_shapes_are_read_from_text_and_numbers():
    assert (
        read_image_shape(" 28 X 28 ") == read_image_shape((28, 28)) == read_image_shape(np.array([28, 28])) == (28, 28)
    )
    for shape in [(28,), (28, 28.0), (True, 4), (2, 2, 4)]:
        with pytest.raises(ParameterError, match="give height and width"):
            read_image_shape(shape)
