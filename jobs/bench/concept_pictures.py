"""Pictures of docs/concepts.md and docs/budget.md: kernels and machines on banana, certificates and budgets on USPS.

    python jobs/bench/concept_pictures.py [--pictures kernel maps learned certificate budget] [--out docs/images]

Everything drawn is computed by the package: machines are trained, plans are made, peaks are measured. Data are read as
by the benchmark jobs (MLLKM_DATA, or fetched).
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from common import ROOT, load, write_hdf5

from mllkm_scale import Dataset, Model, train
from mllkm_scale.base.threads import Threads
from mllkm_scale.data import Preprocessor
from mllkm_scale.kernels.grid import Family
from mllkm_scale.kernels.maps import MAPS, bumps, gamma_of_half_width
from mllkm_scale.learn.batches import Batches, Units
from mllkm_scale.learn.descent import Descent, first_machine
from mllkm_scale.learn.settings import RIDGE, learn_settings
from mllkm_scale.report.style import BLUE, GREY, ORANGE, styled

TINTS = ("#c9c9c9", "#e3e3e3", "#f4a582", "#fddbc7", "#92c5de", "#2166ac", "#d9e8f3")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    drawings = {
        "kernel": draw_kernel,
        "maps": draw_maps,
        "learned": draw_learned,
        "certificate": draw_certificate,
        "budget": draw_budget,
    }
    parser.add_argument("--pictures", nargs="+", choices=drawings, default=list(drawings))
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "images")
    arguments = parser.parse_args()
    for name in arguments.pictures:
        path = arguments.out / ("learned-anchors.png" if name == "learned" else f"concept-{name}.png")
        drawings[name](path)
        print(f"{path} ({path.stat().st_size / 1000:.0f} kB)")


def save(figure: Any, path: Path) -> None:
    """Write a PNG of few colours, which is a third of the size."""
    from PIL import Image

    figure.savefig(path, dpi=160)
    with Image.open(path) as picture:
        few = picture.convert("RGB").quantize(256, dither=Image.Dither.NONE)
    few.save(path, optimize=True)


def plane(side: int = 160, reach: float = 2.6) -> tuple[np.ndarray, tuple[float, ...]]:
    """Points of a square grid in the space of the kernels, and the sides of the square."""
    line = np.linspace(-reach, reach, side)
    return np.stack(np.meshgrid(line, line), axis=-1).reshape(-1, 2), (-reach, reach, -reach, reach)


def only(model: Model, kept: np.ndarray) -> Model:
    """The same machine with some of its kernels."""
    return replace(
        model,
        anchors=model.anchors[kept],
        gammas=model.gammas[kept],
        kernel_scale=model.kernel_scale[kept],
        weights=model.weights[kept],
        coef=model.coef[:, kept],
        local_coef=model.local_coef[:, kept],
    )


def best_first(model: Model, X: np.ndarray, codes: np.ndarray) -> np.ndarray:
    """Kernels in greedy order: each lowers the hinge loss of the sum most."""
    each = np.stack([only(model, np.array([m])).decision_function(X) for m in range(model.n_kernels)])
    signs, total, order = np.where(codes, 1.0, -1.0), np.zeros(len(X)), []
    while len(order) < len(each):
        losses = [
            np.maximum(0, 1 - signs * (total + f)).sum() if m not in order else np.inf for m, f in enumerate(each)
        ]
        order.append(int(np.argmin(losses)))
        total += each[order[-1]]
    return np.array(order)


@styled
def draw_kernel(path: Path) -> None:
    """The factors of one kernel of a trained machine, and the boundary of more and more of its kernels."""
    from matplotlib.figure import Figure

    banana = load("banana")
    rows = np.random.default_rng(0).permutation(len(banana["y"]))[:1500]
    X, y = banana["X"][rows], banana["y"][rows]
    model = train(Dataset.from_arrays(X, y), anchors="all", C=2.0, max_kernels=8, tol=0.01, n_jobs=1).model
    Z, codes = model.preprocessor.transform(X), y == model.classes[1]
    grid, extent = plane()
    raw = grid / model.preprocessor.scaling.factor + model.preprocessor.scaling.offset
    order = best_first(model, X, codes)
    first = order[0]
    anchor = model.anchors[first]
    bump = bumps(model.family.map, ((grid - anchor) ** 2).sum(axis=1), model.gammas[first])
    linear = (grid - anchor) @ model.coef[0, first] + model.local_coef[0, first]
    top = [
        ("a bump around an anchor", bump, "Greys", (0, 1.25)),
        ("a linear function there", linear, "RdBu", None),
        ("their product: one kernel", bump * linear, "RdBu", None),
    ]
    figure = Figure(figsize=(7.2, 4.0))
    axes = figure.subplots(2, 4)
    for axis, (title, values, colours, limits) in zip(axes[0], top, strict=False):
        most = np.abs(values).max()
        low, high = limits or (-most, most)
        _shade(axis, grid, values, (low, high), colours)
        axis.plot(*anchor, "o", color="black", ms=4)
        axis.set_title(title)
    _samples(axes[0, 3], Z, codes)
    axes[0, 3].set_title("the data: two classes")
    for axis, count in zip(axes[1], (1, 2, 4, len(order)), strict=True):
        part = only(model, np.sort(order[:count]))
        values = part.decision_function(raw)
        _shade(axis, grid, values, (-3, 3), "RdBu")
        axis.plot(*part.anchors.T, "o", color="black", ms=3)
        wrong = np.mean(part.predict(X) != y)
        axis.set_title(f"{count} kernel{'s' if count > 1 else ''}: {100 * wrong:.0f} % errors")
    _samples(axes[1, 3], Z, codes, alpha=0.35)
    for axis in axes.flat:
        axis.set(xticks=[], yticks=[], xlim=extent[:2], ylim=extent[2:], aspect="equal")
        axis.spines[:].set_visible(True)
    save(figure, path)


def _shade(axis: Any, grid: np.ndarray, values: np.ndarray, limits: tuple[float, float], colours: str) -> None:
    """Values on the plane in shades; where they have both signs, with the line where they are zero."""
    side = int(np.sqrt(len(grid)))
    line, values = grid[:side, 0], values.reshape(side, side)
    axis.contourf(line, line, values, np.linspace(*limits, 24), cmap=colours, extend="both")
    if limits[0] < 0:
        axis.contour(line, line, values, levels=[0], colors="black", linewidths=1.0)


def _samples(axis: Any, Z: np.ndarray, codes: np.ndarray, alpha: float = 0.6) -> None:
    for positive, colour in ((False, ORANGE), (True, BLUE)):
        axis.scatter(*Z[codes == positive].T, s=2, color=colour, alpha=alpha, lw=0)


@styled
def draw_maps(path: Path) -> None:
    """The four maps, their features of an offset, and the regions in which global and component-wise kernels act."""
    from matplotlib.figure import Figure

    t = np.linspace(0, 3, 400)
    colours = dict(zip(MAPS, (ORANGE, BLUE, GREY, "#1b7837"), strict=True))
    figure = Figure(figsize=(7.2, 2.3))
    left, middle, disc, cross = figure.subplots(1, 4, width_ratios=(1.25, 1.25, 1, 1))
    for name in MAPS:
        h = bumps(name, t**2, gamma_of_half_width(name, 1.0))
        left.plot(t, h, color=colours[name], label=name)
        middle.plot(np.r_[-t[::-1], t], np.r_[-(t * h)[::-1], t * h], color=colours[name])
    left.set(title="h(t): four maps", xlabel="distance t from the anchor", ylim=(0, 1.05), xlim=(0, 3))
    left.legend()
    middle.set(title="h(|t|) t: the feature", xlabel="offset t from the anchor", xlim=(-3, 3))
    middle.axhline(0, color=GREY, lw=0.5)
    grid, _ = plane()
    gamma = gamma_of_half_width("gaussian", 1.0)
    shown = {
        "global": bumps("gaussian", (grid**2).sum(axis=1), gamma),
        "component-wise": bumps("gaussian", grid**2, gamma).mean(axis=1),
    }
    for axis, (title, values) in zip((disc, cross), shown.items(), strict=True):
        _shade(axis, grid, values, (0, 1.15), "Blues")
        axis.plot(0, 0, "o", color="black", ms=4)
        axis.set(title=title, xticks=[], yticks=[], xlabel="$x_1$", ylabel="$x_2$", aspect="equal")
    save(figure, path)


@styled
def draw_learned(path: Path) -> None:
    """Anchors of a descent on banana: at the start, after learning, and after MKL."""
    from matplotlib.figure import Figure

    banana, n_kernels = load("banana"), 24
    rows = np.random.default_rng(0).permutation(len(banana["y"]))
    X, y = banana["X"][rows], banana["y"][rows]
    codes = y == y.max()
    data = Dataset.from_arrays(X[:1500], y[:1500])
    preprocessor = Preprocessor.fit(data)
    Z = preprocessor.transform(X, np.float32)
    settings = learn_settings(1500, n_kernels, "diagonal", seed=0)
    candidates = Z[:1500].astype(np.float64)
    machine = first_machine(Family("gaussian", False), candidates, candidates, 1, settings)
    signs = np.where(codes[:1500], 1.0, -1.0)[:, None]
    batches = Batches(
        Dataset.from_arrays(Z[:1500]), signs, np.ones(1500, bool), settings.batch_rows, Units(np.zeros(2), 1.0), seed=0
    )
    descent = Descent(machine, batches, settings, Threads(1))
    paths = [machine.anchors.copy()] + [descent.machine.anchors.copy() for _ in descent.epochs(None)]
    params = {"anchors": f"learned:{n_kernels}", "metric": "diagonal", "ridge": RIDGE, "scaling": "standard"}
    model = train(data, **params, C=1.0, finish="mkl", n_jobs=1).model
    grid, extent = plane()
    wrong = [
        np.mean((descent.decide(Z[1500:])[:, 0] > 0) != codes[1500:]),
        np.mean(model.predict(X[1500:]) != y[1500:]),
    ]

    figure = Figure(figsize=(7.2, 2.65))
    start, moved, weighed = figure.subplots(1, 3)
    _samples(start, Z[:1500], codes[:1500])
    start.plot(*paths[0].T, "o", color="black", ms=3.5, mec="white", mew=0.5)
    start.set_title(f"start: {n_kernels} anchors on samples")
    _shade(moved, grid, descent.decide(grid.astype(np.float32))[:, 0].astype(np.float64), (-3, 3), "RdBu")
    for kernel in range(n_kernels):
        moved.plot(*np.array([anchors[kernel] for anchors in paths]).T, color="black", lw=0.6, alpha=0.7)
    moved.plot(*paths[0].T, "o", color="white", ms=2.5, mec="black", mew=0.5)
    moved.plot(*paths[-1].T, "o", color="black", ms=3.5, mec="white", mew=0.5)
    moved.set_title(f"after {settings.epochs} epochs: {100 * wrong[0]:.1f} % test error")
    raw = grid / preprocessor.scaling.factor + preprocessor.scaling.offset
    _shade(weighed, grid, model.decision_function(raw), (-3, 3), "RdBu")
    kept = preprocessor.transform(model.preprocessor.invert(model.anchors))
    weighed.scatter(*kept.T, s=4 + 160 * model.weights, color="black", edgecolor="white", lw=0.5, zorder=3)
    weighed.set_title(f"MKL: {model.n_kernels} kernels, {100 * wrong[1]:.1f} % test error")
    for axis in (start, moved, weighed):
        axis.set(xticks=[], yticks=[], xlim=extent[:2], ylim=extent[2:], aspect="equal")
        axis.spines[:].set_visible(True)
    save(figure, path)


@styled
def draw_certificate(path: Path) -> None:
    """Bounds, gap and kernels over the rounds of a training run on USPS."""
    from matplotlib.figure import Figure

    usps = load("usps")
    params = {"C": 10.0, "anchors": "all", "n_components": 40, "scaling": "none", "tol": 0.01, "pricing": "full"}
    result = train(Dataset.from_arrays(usps["X"][:3000], usps["y"][:3000]), memory_budget="1GB", **params)
    history = result.history
    rounds = [event.number for event in history]
    best = np.maximum.accumulate([event.dual for event in history])
    primal = [event.primal for event in history]
    figure = Figure(figsize=(7.2, 2.4))
    left, middle, right = figure.subplots(1, 3)
    left.fill_between(rounds, np.maximum(best, 0), primal, color=BLUE, alpha=0.12, lw=0)
    left.plot(rounds, primal, "o-", ms=3, color=ORANGE, label="P: the machine")
    left.plot(rounds, best, "o-", ms=3, color=BLUE, label="D: the bound")
    left.set(title="The optimum is between P and D", xlabel="round", ylim=(0, 1.25 * primal[1]))
    left.legend()
    gaps = [100 * (p - d) / p for p, d in zip(primal, best, strict=True)]
    middle.semilogy(rounds, gaps, "o-", ms=3, color=GREY)
    middle.axhline(1, color=ORANGE, ls="--", lw=0.9)
    middle.annotate("tolerance", (rounds[0], 1.08), fontsize=7, color=ORANGE)
    middle.set(title="Certified gap (%)", xlabel="round")
    middle.set_yticks([1, 10, 100], ["1", "10", "100"])
    right.semilogy(rounds, [event.n_open for event in history], color=GREY, label="candidates, all priced")
    violating = [event.n_violating_kernels or np.nan for event in history]
    right.semilogy(rounds, violating, "o-", ms=3, color=ORANGE, label="violators")
    right.semilogy(rounds, [event.n_active for event in history], "o-", ms=3, color=BLUE, label="active")
    right.set(title="Kernels", xlabel="round", ylim=(1, 2e6))
    right.legend(loc="upper left")
    save(figure, path)


def draw_budget(path: Path) -> None:
    """One training run within three budgets, each in a separate process."""
    usps, runs = load("usps"), []
    options = ["--C", "10", "--scaling", "none", "--tol", "0.05", "--gammas", "0.095,0.0465,0.0116,0.0029"]
    options += ["--no-report", "--progress", "plain"]
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "usps.h5"
        write_hdf5(data, usps["X"][:3000], usps["y"][:3000])
        for budget in ("450MB", "650MB", "1GB"):
            run = Path(folder) / budget
            command = [sys.executable, "-m", "mllkm_scale", "train", str(data), "--out", str(run), "--memory", budget]
            subprocess.run([*command, *options], check=True)
            runs.append(json.loads((run / "run.json").read_text()))
    draw_plans(runs, path)


@styled
def draw_plans(runs: list[dict[str, Any]], path: Path) -> None:
    """Plans as bars, one per budget, with the measured peaks and the forms that were used."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.2, 2.7))
    axis = figure.subplots()
    for position, run in enumerate(runs):
        start = 0.0
        for row, tint in zip(run["plan"]["rows"], TINTS, strict=True):
            label = row["what"] if position == 0 else None
            axis.barh(position, row["bytes"] / 1e6, left=start, height=0.5, color=tint, label=label)
            start += row["bytes"] / 1e6
        budget, peak = run["plan"]["budget_bytes"] / 1e6, run["result"]["peak_bytes"] / 1e6
        forms = ", ".join(f"{form} {count}x" for form, count in sorted(run["inner"][0]["forms"].items()))
        axis.plot([budget, budget], [position - 0.36, position + 0.36], color="black", lw=1.4)
        axis.plot(peak, position, "D", color="black", ms=5, mec="white", mew=0.8)
        axis.annotate(f"{peak:.0f} MB", (peak, position + 0.28), fontsize=7, ha="center", va="bottom")
        axis.annotate(forms, (budget + 12, position), fontsize=7, va="center")
    axis.plot([], [], "D", color="black", ms=5, ls="none", label="measured peak")
    axis.plot([], [], color="black", lw=1.4, label="budget")
    axis.set_yticks(range(len(runs)), [f"{run['plan']['budget_bytes'] / 1e6:,.0f} MB" for run in runs])
    axis.set(xlabel="memory of the process (MB)", ylim=(-0.5, len(runs) - 0.3), xlim=(0, 1150))
    figure.legend(loc="outside lower center", ncols=3)
    save(figure, path)


if __name__ == "__main__":
    main()
