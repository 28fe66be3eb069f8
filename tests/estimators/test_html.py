"""What machines, models and tables say of themselves: in one line, and as the page of a notebook."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
import sklearn

from mllkm_scale import Dataset, MLLKMClassifier, train
from mllkm_scale.model.tables.additive import compile_additive

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
Fitted = Callable[..., MLLKMClassifier]


@pytest.fixture(scope="module")
def fitted(real_data: Callable) -> Fitted:
    """An estimator that was fitted to some of the iris data."""
    made: dict[object, MLLKMClassifier] = {}

    def fit(names: tuple[str, ...] = ("setosa", "versicolor", "virginica"), **params: object) -> MLLKMClassifier:
        key = (names, *sorted(params.items()))
        if key not in made:
            X, y = real_data("iris")
            made[key] = MLLKMClassifier(anchors=30, tol=0.05, n_jobs=1, **params).fit(X, np.array(names)[y])
        return made[key]

    return fit


class Rows(HTMLParser):
    """Texts of the table of facts, and all elements that are open or closed."""

    def __init__(self) -> None:
        super().__init__()
        self.facts: dict[str, str] = {}
        self.opened: list[str] = []
        self._inside, self._cell = False, ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "table" and ("class", "mllkm-facts") in attrs:
            self._inside = True
        if self._inside:
            self.opened.append(tag)
            self._cell = tag

    def handle_endtag(self, tag: str) -> None:
        if self._inside:
            assert self.opened.pop() == tag
            self._inside = bool(self.opened)

    def handle_data(self, data: str) -> None:
        if self._inside and self._cell == "th":
            self._name = data
        elif self._inside and self._cell == "td":
            self.facts[self._name] = data


def facts(estimator: MLLKMClassifier) -> dict[str, str]:
    parser = Rows()
    parser.feed(estimator._repr_html_())
    assert parser.opened == []
    return parser.facts


@pytest.mark.parametrize("componentwise", [False, True])
def test_a_model_tells_in_one_line_what_it_is(fitted: Fitted, componentwise: bool) -> None:
    model = fitted(componentwise=componentwise).model_
    text = repr(model)
    kind = "component-wise" if componentwise else "global"
    assert text.startswith(f"Model(gaussian, {kind}, {model.n_kernels} of {model.certificate.n_open} kernels, ")
    assert "4 features, 3 classes, gap " in text
    assert "\n" not in text
    assert repr(model.direct()).startswith("DirectModel(")


def test_a_model_of_a_stream_claims_no_gap(real_data: Callable) -> None:
    X, y = real_data("breast_cancer")
    machine = MLLKMClassifier(warm_up=100, n_jobs=1).partial_fit(X[:400], y[:400], classes=[0, 1])
    assert "nothing proved" in repr(machine.model_)
    assert facts(machine)["proved"] == "nothing: learned from a stream"
    assert facts(machine)["prequential error"].endswith(" %")
    assert "peak memory" not in facts(machine)


def test_a_stream_that_has_only_begun_has_a_page(real_data: Callable) -> None:
    X, y = real_data("iris")
    machine = MLLKMClassifier(n_jobs=1).partial_fit(X[:1], y[:1], classes=[0, 1, 2])
    assert facts(machine)


def test_tables_tell_in_one_line_what_they_are(fitted: Fitted) -> None:
    tables = compile_additive(fitted(componentwise=True).model_)
    assert repr(tables).startswith(f"AdditiveModel(4 features, 3 outputs, {tables.cells:,} cells, ")
    assert len(repr(tables)) < 120


def test_a_result_tells_in_one_line_what_came_out(real_data: Callable) -> None:
    data = Dataset.from_arrays(*real_data("iris"))
    result = train(data, test=data, anchors=20, tol=0.2, n_jobs=1)
    assert repr(result).startswith(f"TrainResult({result.model!r}, {len(result.history)} rounds, peak memory ")
    assert f"of 2.0 GB, test error {100 * result.evaluation.error:.3g} %" in repr(result)


def test_the_repr_of_the_estimator_is_that_of_scikit_learn(fitted: Fitted) -> None:
    assert repr(fitted()) == "MLLKMClassifier(anchors=30, n_jobs=1, tol=0.05)"


def test_the_page_of_a_fitted_estimator_tells_what_was_learned(fitted: Fitted) -> None:
    machine = fitted()
    told = facts(machine)
    assert told["kernels"] == f"{machine.model_.n_kernels} of {machine.n_open_} candidates"
    assert told["duality gap"].startswith(f"{100 * machine.gap_:.3g} % over all candidates (asked for 5 %)")
    assert told["classes"] == "setosa, versicolor, virginica"
    assert told["trained on"] == "150 samples of 4 features"
    assert told["rounds"] == str(machine.n_iter_)
    assert told["peak memory"].endswith(" of 2.0 GB")
    assert told["cost of a row"].endswith("bumps")


def test_an_estimator_that_is_not_fitted_has_scikit_learns_page_alone() -> None:
    assert facts(MLLKMClassifier()) == {}


def test_the_page_obeys_scikit_learns_display(fitted: Fitted) -> None:
    assert "mllkm-facts" in fitted()._repr_mimebundle_()["text/html"]
    with sklearn.config_context(display="text"):
        assert "text/html" not in fitted()._repr_mimebundle_()
        assert not hasattr(fitted(), "_repr_html_")


def test_names_of_classes_are_escaped(fitted: Fitted) -> None:
    hostile = ("<script>alert(1)</script>", "a & b", 'c" onload="x')
    html = fitted(hostile)._repr_html_()
    assert "<script>alert" not in html
    assert facts(fitted(hostile))["classes"] == ", ".join(sorted(hostile))


def test_the_page_of_a_component_wise_machine_makes_no_tables(fitted: Fitted, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = fitted(componentwise=True)
    monkeypatch.setattr("mllkm_scale.model.model.additive_form", None)
    assert facts(machine)["cost of a row"].endswith("where no tables are used")


@pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium to draw the page")
def test_a_browser_shows_every_fact_within_a_narrow_window(fitted: Fitted, tmp_path: Path) -> None:
    names = ("a" * 250, "b", "c")
    look = """<script>addEventListener("load", () => {
        const rows = [...document.querySelectorAll(".mllkm-facts tr")];
        const seen = rows.filter(row => row.getBoundingClientRect().height > 8).length;
        const wide = document.querySelector(".mllkm-facts").getBoundingClientRect().right > innerWidth + 1;
        document.title = `${seen} of ${rows.length} rows, ${wide ? "too wide" : "fits"}`;
    })</script>"""
    page = tmp_path / "page.html"
    page.write_text(f"<!doctype html><meta charset=utf-8>{fitted(names)._repr_html_()}{look}", encoding="utf-8")
    flags = "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking"
    more = f"--disable-component-update --disable-sync --window-size=500,900 --user-data-dir={tmp_path / 'profile'}"
    done = subprocess.run(
        [str(CHROMIUM), *flags.split(), *more.split(), "--dump-dom", page.as_uri()],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert "<title>8 of 8 rows, fits</title>" in done.stdout
