"""A page that compares several runs: a table of differences, and pictures with all runs.

The pictures show gaps or prequential errors over time, and the error against the cost of a row.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from mllkm_scale.base.units import format_bytes
from mllkm_scale.base.version import __version__
from mllkm_scale.base.wording import percent, seconds
from mllkm_scale.errors import ParameterError
from mllkm_scale.model.describe import Description, describe
from mllkm_scale.report.facts import cost_of_row, data_facts, gap_of, shown
from mllkm_scale.report.picture import (
    Picture,
    canvas,
    embedded,
    log_axis,
    render,
    require_page,
    thinned,
    time_axis,
    write_page,
)
from mllkm_scale.report.prepared_space import plain
from mllkm_scale.report.regions import class_colours
from mllkm_scale.report.run_files import Run, read_run
from mllkm_scale.report.style import styled

__all__ = ["write_comparison"]

MOST_LABELS = 12
UNKNOWN = "–"


def _comparison_pictures(
    runs: Sequence[Run], names: Sequence[str], facts: Sequence[Description | None]
) -> list[Picture]:
    """The pictures for which the runs have data."""
    pictures = []
    if any(run.rounds for run in runs):
        pictures.append(_gaps(runs, names))
    if any(run.reports for run in runs):
        pictures.append(_prequential_errors(runs, names))
    if sum(run.evaluation is not None and known is not None for run, known in zip(runs, facts, strict=True)) > 1:
        pictures.append(_costs(runs, names, facts))
    return pictures


@styled
def _gaps(runs: Sequence[Run], names: Sequence[str]) -> Picture:
    figure, axes = canvas()
    unit = time_axis(axes, max(run.rounds[-1].elapsed_s for run in runs if run.rounds))
    for run, name, colour in zip(runs, names, class_colours(len(runs)), strict=True):
        if run.rounds:
            kept = [run.rounds[i] for i in thinned(len(run.rounds))]
            gaps = [event.gap if event.gap > 0 else float("nan") for event in kept]
            axes.plot(
                [event.elapsed_s / unit for event in kept], gaps, "o-", ms=2.5, color=colour, label=plain(name, 30)
            )
    log_axis(axes, "y")
    axes.set_ylabel("proved gap")
    if len(runs) <= MOST_LABELS:
        axes.legend()
    return embedded(figure, f"Gap over time of {len(runs)} runs", "The certified duality gap of each run over time.")


@styled
def _prequential_errors(runs: Sequence[Run], names: Sequence[str]) -> Picture:
    figure, axes = canvas()
    for run, name, colour in zip(runs, names, class_colours(len(runs)), strict=True):
        if run.reports:
            kept = [run.reports[i] for i in thinned(len(run.reports))]
            errors = [100 * report.error for report in kept]
            axes.plot([report.number for report in kept], errors, color=colour, label=plain(name, 30))
    axes.set(xlabel="samples", ylabel="prequential error, %", ylim=(0, None))
    if len(runs) <= MOST_LABELS:
        axes.legend()
    caption = "The share of samples that each stream misclassified before it learned them."
    return embedded(figure, f"Prequential error of {len(runs)} runs", caption)


@styled
def _costs(runs: Sequence[Run], names: Sequence[str], facts: Sequence[Description | None]) -> Picture:
    figure, axes = canvas()
    for run, name, known, colour in zip(runs, names, facts, class_colours(len(runs)), strict=True):
        if run.evaluation is None or known is None:
            continue
        cost = known.multiply_adds if known.tables is None else known.tables.multiply_adds
        axes.plot([cost], [100 * run.evaluation.error], "o", color=colour, ms=6)
        if len(runs) <= MOST_LABELS:
            place = (cost, 100 * run.evaluation.error)
            axes.annotate(plain(name, 24), place, (5, 4), textcoords="offset points", fontsize=6.5)
    axes.set_xscale("log")
    axes.set(xlabel="multiply-adds of a predicted row", ylabel="test error, %")
    axes.margins(0.18)
    log_axis(axes, "x")
    axes.set_ylim(bottom=0)
    caption = "Cost and error of predictions. Models further to the left are cheaper, and lower ones are more accurate."
    return embedded(figure, f"Test error against cost of {len(runs)} runs", caption)


@dataclass(frozen=True)
class Line:
    """A row of the table: one cell per run, and whether they differ."""

    name: str
    cells: tuple[str, ...]
    code: bool = False

    @property
    def differs(self) -> bool:
        """Whether the runs differ in this row."""
        return len(set(self.cells)) > 1


def write_comparison(
    run_dirs: Sequence[str | os.PathLike[str]], *, out: str | os.PathLike[str] = "comparison.html"
) -> Path:
    """Write one page that compares several runs: a table, the gaps over time, and error against cost.

    Parameters
    ----------
    run_dirs : sequence of paths
        At least two run folders.
    out : path
        The file; comparison.html in the working folder by default.

    Returns
    -------
    pathlib.Path
        The file.

    Examples
    --------
    >>> import tempfile
    >>> from mllkm_scale import Dataset, train
    >>> from sklearn.datasets import load_iris
    >>> data = Dataset.from_arrays(*load_iris(return_X_y=True))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for C in (1.0, 10.0):
    ...         _ = train(data, run_dir=f"{folder}/C={C:g}", C=C, report=False, n_jobs=1)
    ...     page = write_comparison([f"{folder}/C=1", f"{folder}/C=10"], out=f"{folder}/both.html")
    ...     "C=10" in page.read_text()
    True
    """
    if len(run_dirs) < 2:
        raise ParameterError("a comparison needs at least two runs: name another run folder")
    require_page(Path(out))
    runs = [read_run(run_dir) for run_dir in run_dirs]
    names = _names(runs)
    facts = [None if run.model is None else describe(run.model) for run in runs]
    page = render(
        "comparison.html",
        names=names,
        lines=_lines(runs, facts),
        parameters=_parameters(runs),
        pictures=_comparison_pictures(runs, names, facts),
        version=__version__,
    )
    return write_page(Path(out), page)


def _names(runs: Sequence[Run]) -> list[str]:
    """The names of the folders, with more of the path if two names are equal."""
    counts = Counter(run.name for run in runs)
    return [run.name if counts[run.name] == 1 else str(run.path) for run in runs]


def _lines(runs: Sequence[Run], facts: Sequence[Description | None]) -> list[Line]:
    """The rows for which at least one run has a value."""

    def of_run(tell: Callable[[Run], str | None]) -> tuple[str, ...]:
        return tuple(tell(run) or UNKNOWN for run in runs)

    def of_facts(tell: Callable[[Description], str]) -> tuple[str, ...]:
        return tuple(UNKNOWN if known is None else tell(known) for known in facts)

    def of_data(name: str) -> tuple[str, ...]:
        return tuple(data_facts(run).get(name, UNKNOWN) for run in runs)

    lines = [
        *(Line(name, of_data(name)) for name in ("data", "rows", "features", "test data")),
        Line("status", of_run(lambda run: run.status)),
        Line("test error", of_run(lambda run: None if run.evaluation is None else percent(run.evaluation.error))),
        Line("prequential error", of_run(_prequential)),
        Line("gap", of_run(lambda run: None if (gap := gap_of(run)) is None else percent(gap))),
        Line("P, upper bound", of_run(lambda run: _bound(run, "primal"))),
        Line("D, lower bound", of_run(lambda run: _bound(run, "dual"))),
        Line("kernels", of_facts(lambda known: f"{known.n_kernels:,}")),
        Line("candidates", of_run(lambda run: None if run.n_candidates is None else f"{run.n_candidates:,}")),
        Line("learned kernels", of_run(lambda run: f"{run.learned['n_kernels']:,}" if run.learned else None)),
        Line("rounds", of_run(lambda run: f"{len(run.rounds):,}" if run.rounds else None)),
        Line("time", of_run(lambda run: None if run.elapsed_s is None else seconds(run.elapsed_s))),
        Line("peak memory", of_run(lambda run: None if run.peak_bytes is None else format_bytes(run.peak_bytes))),
        Line("budget", of_run(lambda run: None if run.budget_bytes is None else format_bytes(run.budget_bytes))),
        Line("model file", of_run(lambda run: None if run.model_bytes is None else format_bytes(run.model_bytes))),
        Line("cost of a row", of_facts(cost_of_row)),
        Line("version", of_run(lambda run: str(run.record["version"]) if run.record.get("version") else None)),
    ]
    return [line for line in lines if set(line.cells) != {UNKNOWN}]


def _prequential(run: Run) -> str | None:
    if not run.is_stream or not run.reports:
        return None
    return percent(float(run.result.get("error") or run.reports[-1].error))


def _bound(run: Run, which: str) -> str | None:
    if run.is_stream:
        return None
    if run.model is not None:
        return f"{getattr(run.model.certificate, which):.6g}"
    return f"{getattr(run.rounds[-1], which):.6g}" if run.rounds else None


def _parameters(runs: Sequence[Run]) -> list[Line]:
    """The parameters that differ between the runs."""
    names = dict.fromkeys(name for run in runs for name in run.parameters)
    lines = [
        Line(name, tuple(shown(run.parameters[name]) if name in run.parameters else UNKNOWN for run in runs), code=True)
        for name in names
    ]
    return [line for line in lines if line.differs]
