"""Pictures of models whose features are columns, quantiles or directions: named after the data, in its units."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from mllkm_scale import Dataset, MLLKMClassifier
from mllkm_scale.data import Preprocessor
from mllkm_scale.report.kernels import anchor_images
from mllkm_scale.report.prepared_space import axis_name, codes_at
from mllkm_scale.report.regions import anchor_regions
from mllkm_scale.report.shape_pictures import _units, shape_section

NAMES = ("age", "income", "rate", "size")


def rows(n=120):
    return np.random.default_rng(0).lognormal(size=(n, 4))


def fold(prepared, name):
    random = np.random.default_rng(1)
    p = prepared.n_features_out
    if name == "scaled":
        return prepared.scaled(random.uniform(0.5, 2.0, p), np.arange(p) % 3 != 1)
    if name == "two":
        return prepared.scaled(random.uniform(0.5, 2.0, p), np.arange(p) < 2)
    if name == "one":
        return prepared.scaled(random.uniform(0.5, 2.0, p), np.arange(p) == p - 1)
    if name == "mapped":
        return prepared.mapped(random.normal(size=(3, p)))
    return prepared


@pytest.fixture(scope="module")
def model_with():
    """A small machine behind a preparation of four features."""

    def make(scaling, folded="", componentwise=False):
        X = rows()
        prepared = fold(Preprocessor.fit(Dataset.from_arrays(X), scaling), folded)
        Z = prepared.transform(X)
        y = (Z[:, 0] > np.median(Z[:, 0])).astype(int)
        machine = MLLKMClassifier(anchors="all", scaling="none", componentwise=componentwise, tol=0.3, n_jobs=1).fit(
            Z, y
        )
        return replace(machine.model_, preprocessor=prepared, feature_names=NAMES, profile=None)

    return make


@pytest.mark.parametrize("folded", ["", "scaled", "two", "one", "mapped"])
@pytest.mark.parametrize("scaling", ["standard", "unit-norm", "quantile", "standard+quantile"])
def test_every_picture_can_be_drawn(model_with, scaling, folded):
    model = model_with(scaling, folded)
    assert anchor_regions(model, NAMES).source
    assert anchor_images(model, (2, 2)).source
    expected = model.codes(model.decision_function(rows()))
    agreement = np.mean(codes_at(model, model.preprocessor.transform(rows())) == expected)
    assert agreement > 0.99


@pytest.mark.parametrize("folded", ["", "scaled", "mapped"])
def test_shapes_are_drawn_for_columns(model_with, folded):
    section = shape_section(model_with("standard+quantile", folded, componentwise=True), NAMES)
    assert section.pictures
    captions = " ".join(picture.caption for picture in section.pictures)
    assert ("direction" in captions) == (folded == "mapped")


def test_axes_are_named_after_the_features_of_their_columns(model_with):
    model = model_with("standard+quantile", "scaled")
    assert model.preprocessor.scaling.columns.tolist() == [0, 2, 3, 1, 2]
    found = [axis_name(model, NAMES, j) for j in range(5)]
    assert found == ["age", "rate", "size", "income (quantile)", "rate (quantile)"]
    assert axis_name(model, None, 3) == "feature 1 (quantile)"
    assert axis_name(model_with("standard", "mapped"), NAMES, 1) == "direction 2"


def test_shapes_are_in_the_units_of_the_data(model_with):
    model = model_with("standard+quantile", "scaled")
    Z = model.preprocessor.transform(rows())
    for column, feature in enumerate(model.preprocessor.scaling.columns):
        np.testing.assert_allclose(_units(model, column, Z[:, column]), rows()[:, feature], rtol=1e-9)
