"""The paper's figures: what they are drawn from, and their files."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from mllkm_scale.cli import cli
from mllkm_scale.report.style import save
from mllkm_scale.reproduce.figures import (
    ANCHOR,
    KNOTS,
    boundary,
    draw_figure1,
    draw_figure2,
    draw_samples,
    image,
    train_family,
)
from mllkm_scale.reproduce.methods import FAMILIES
from mllkm_scale.reproduce.significance import ranks
from mllkm_scale.reproduce.write_table2 import draw_ranks

BUMPS = {
    "exponential": lambda t, gamma: math.exp(-gamma * t),
    "gaussian": lambda t, gamma: math.exp(-gamma * t * t),
    "linear": lambda t, gamma: max(0.0, 1.0 - gamma * t),
    "squared": lambda t, gamma: max(0.0, 1.0 - gamma * t * t),
}


@pytest.mark.parametrize(("map", "componentwise"), FAMILIES.values())
def test_images_are_those_of_the_definition(map, componentwise):
    X, gamma = np.random.default_rng(0).uniform(-1, 1, (20, 2)), 0.7
    points, nearness = image(X, ANCHOR, map, componentwise, gamma)
    for x, point, near in zip(X, points, nearness, strict=True):
        offset = x - ANCHOR
        distances = np.abs(offset) if componentwise else np.full(2, math.hypot(*offset))
        h = np.array([BUMPS[map](t, gamma) for t in distances])
        np.testing.assert_allclose(point, h * offset, atol=1e-12)
        assert near == pytest.approx(h.min())


def test_the_classes_lie_on_the_sides_of_a_piecewise_linear_line():
    X, y = draw_samples(2_000, seed=0)
    assert set(np.unique(y)) == {-1, 1}
    assert np.array_equal(y == 1, X[:, 1] > boundary(X[:, 0]))
    assert np.all(np.abs(X) <= 1)
    np.testing.assert_allclose(boundary(KNOTS[:, 0]), KNOTS[:, 1])
    middle = KNOTS[:2].mean(axis=0)
    assert boundary(middle[:1])[0] == pytest.approx(middle[1])


@pytest.mark.parametrize("name", ["Gaussian", "Square", "Component Gaussian", "Component Square"])
def test_machines_of_the_papers_four_families_follow_the_line(name):
    machine = train_family(*FAMILIES[name])
    assert machine.gap_ <= 1e-3
    X, y = draw_samples(5_000, seed=7)
    assert machine.score(X, y) >= 0.95
    assert len(machine.weights_) < 60  # of 4,000


def test_figure_one_has_nine_panels_and_the_same_bytes_each_time(tmp_path: Path):
    figure = draw_figure1()
    assert len(figure.axes) == 9
    first, second = tmp_path / "a", tmp_path / "b"
    for folder in (first, second):
        folder.mkdir()
        paths = save(draw_figure1(), folder / "figure1")
        assert [path.name for path in paths] == ["figure1.png", "figure1.svg"]
    for name in ("figure1.png", "figure1.svg"):
        assert (first / name).read_bytes() == (second / name).read_bytes()


def test_figure_two_shows_every_family_with_support_vectors_and_kernels():
    figure = draw_figure2()
    panels = figure.axes[:8]
    assert [axes.get_title()[4:] for axes in panels] == list(FAMILIES)
    for axes in panels:
        styles = {line.get_marker(): len(line.get_xdata()) for line in axes.lines}
        assert styles["o"] > 10  # support vectors
        assert styles["s"] > 5  # active kernels
        assert len(axes.images) == 1
        assert f"{styles['s']} kernels, {styles['o']} SV" in axes.texts[0].get_text()


def test_ranks_are_drawn_from_best_to_worst():
    found = ranks(np.array([[0.9, 0.8, 0.7], [0.8, 0.9, 0.7]]))
    axes = draw_ranks(["a", "MLLKM (b)", "c"], found).axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["a", "MLLKM (b)", "c"]


def test_the_command_writes_png_and_svg(tmp_path: Path):
    result = CliRunner().invoke(cli, ["reproduce", "figure1", "--out", str(tmp_path / "new")])
    assert result.exit_code == 0, result.output
    assert (tmp_path / "new" / "figure1.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (tmp_path / "new" / "figure1.svg").read_text(encoding="utf-8")


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path):
    (tmp_path / "file").write_text("")
    result = CliRunner().invoke(cli, ["reproduce", "figure1", "--out", str(tmp_path / "file" / "below")])
    assert result.exit_code == 7
    assert "below" in result.output
