"""A description counts what is in the model, as text and as JSON."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mllkm_scale.errors import ModelFileError
from mllkm_scale.model import describe, model_checksum
from mllkm_scale.model.describe import GammaShare
from mllkm_scale.model.describe_text import gamma_ranges


@pytest.mark.parametrize("own_weights", [False, True])
def test_gammas_and_kernels_are_counted_and_weighed(make_model, own_weights):
    model = make_model(classes=(1, 2, 3), n_kernels=20, own_weights=own_weights)
    facts = describe(model, heaviest=4)
    weights = model.weights.sum(axis=0) if own_weights else model.weights
    assert [share.gamma for share in facts.gammas] == sorted(set(model.gammas.tolist()))
    for share in facts.gammas:
        assert share.count == np.count_nonzero(model.gammas == share.gamma)
        assert share.weight == pytest.approx(weights[model.gammas == share.gamma].sum())
    assert sum(share.share for share in facts.gammas) == pytest.approx(1.0)
    assert [kernel.position for kernel in facts.heaviest] == np.argsort(-weights)[:4].tolist()
    for kernel in facts.heaviest:
        m = kernel.position
        assert kernel.weight == weights[m]
        assert kernel.share == pytest.approx(weights[m] / weights.sum())
        assert kernel.gamma == model.gammas[m]
        assert kernel.norm == pytest.approx(np.linalg.norm(model.coef[:, m]))
    assert facts.shared_weights is not own_weights


def test_json_holds_everything(make_model, tmp_path):
    model = make_model(classes=("a", "b"), n_components=3, componentwise=True, local_bias=0.5)
    model.save(tmp_path / "a.mllkm")
    facts = describe(model, path=tmp_path / "a.mllkm")
    found = json.loads(json.dumps(facts.as_dict(), allow_nan=False))
    assert found["family"] == "gaussian, component-wise, local bias 0.5"
    assert found["classes"] == ["a", "b"]
    assert found["n_kernels"] == 7
    assert (found["n_features_in"], found["n_features_out"]) == (4, 3)
    assert found["preprocessing"] == "standard scaling, 3 principal components of 4 features"
    assert found["certificate"]["gap"] == 0.005
    assert found["certificate"]["params"]["gammas"] == [0.05, 0.2, 0.7]
    assert found["file_bytes"] == (tmp_path / "a.mllkm").stat().st_size
    assert found["checksum"] == model_checksum(model)
    assert len(found["heaviest"]) == 7


def test_columns_and_maps_are_told(make_model):
    model = make_model(scaling="standard+quantile")
    both = "standard+quantile scaling (8 columns of 4 of 4 features, 4 of them quantiles)"
    assert describe(model).preprocessing == both
    prepared = make_model().preprocessor.scaled(np.ones(4), np.arange(4) > 1)
    parts = {"anchors": model.anchors[:, :2], "coef": model.coef[:, :, :2]}
    kept = replace(model, preprocessor=prepared, **parts)
    assert describe(kept).preprocessing == "standard scaling (2 columns of 2 of 4 features)"
    assert describe(kept).multiply_adds == 2 + 7 * 2 + 7 * 3
    mapped = replace(model, preprocessor=prepared.mapped(np.eye(2)), **parts)
    assert describe(mapped).preprocessing.endswith("of 4 features), mapped to 2 features")


def test_the_cost_of_a_row_counts_the_products(make_model):
    model = make_model(classes=(1, 2, 3), n_components=3)
    s, d, d_in, machines = 7, 3, 4, 3
    scaled_and_projected = d_in + d_in * d
    facts = describe(model)
    assert facts.bumps == s
    assert facts.multiply_adds == scaled_and_projected + s * d + machines * s * (d + 1)
    assert facts.file_bytes is None
    assert facts.memory_bytes > 8 * machines * s * d
    component = describe(make_model(classes=(1, 2, 3), n_components=3, componentwise=True))
    assert component.bumps == s * d
    assert component.multiply_adds > facts.multiply_adds


def test_tables_are_described_beside_the_direct_form(make_model):
    model = make_model("gaussian", True, 0.5, (1, 2, 3), n_components=3, n_kernels=60)
    facts, direct = describe(model), describe(model.direct())
    tables = model.form.tables
    assert (facts.tables.cells, facts.tables.bytes) == (tables.cells, tables.bytes)
    assert facts.tables.deviation == tables.deviation <= 1e-6
    d, d_in, machines, degree = 3, 4, 3, 5
    assert facts.tables.lookups == d
    assert facts.tables.multiply_adds == d_in + d_in * d + d * (1 + machines * degree)
    assert facts.multiply_adds == direct.multiply_adds > 10 * facts.tables.multiply_adds
    assert json.loads(json.dumps(facts.as_dict(), allow_nan=False))["tables"]["cells"] == tables.cells
    text = facts.as_text()
    assert f"cost of a row  {facts.tables.multiply_adds:,} multiply-adds, 3 lookups by tables" in text
    assert f"directly       {facts.multiply_adds:,} multiply-adds, 180 bumps" in text
    assert f"tables         {tables.cells:,} cells, " in text
    assert "off by at most" in text


def test_why_there_are_no_tables_is_told_of_component_wise_models(make_model):
    few = describe(make_model("gaussian", True))
    assert few.tables is None
    assert few.no_tables.startswith("tables pay from")
    assert "no tables      tables pay from" in few.as_text()
    assert "tables" not in describe(make_model("gaussian")).as_text()


def test_text_shows_the_certificate_the_gammas_and_the_heaviest_kernels(make_model):
    model = make_model(classes=tuple(range(12)), scaling="none")
    text = describe(model, heaviest=2).as_text()
    assert "1.99 <= optimum <= 2 over 90 kernels" in text
    assert "0.500% (asked for 1.000%), converged" in text
    assert "7 of 90 candidates" in text
    assert "no scaling" in text
    assert "8, 9, ... (12)" in text
    assert model_checksum(model) in text
    assert len(text.splitlines()) == 14 + 2 + len(set(model.gammas)) + 2 + 2


@given(counts=st.lists(st.integers(1, 30), min_size=1, max_size=200))
def test_many_gammas_are_shown_in_a_few_ranges_that_cover_them(counts):
    shares = [GammaShare(0.1 * (i + 1), count, 1.0, 1.0) for i, count in enumerate(counts)]
    ranges = gamma_ranges(shares)
    assert [share for _, own in ranges for share in own] == shares
    if len(shares) <= 12:
        assert [text for text, _ in ranges] == [f"{share.gamma:.5g}" for share in shares]
    else:
        assert len(ranges) <= 8
        assert max(sum(share.count for share in own) for _, own in ranges) <= sum(counts) / 8 + max(counts)
        assert ranges[0][0].startswith("0.1 to ")


def test_a_file_that_is_gone_is_named(make_model, tmp_path):
    with pytest.raises(ModelFileError, match=r"gone\.mllkm cannot be read"):
        describe(make_model(), path=tmp_path / "gone.mllkm")
