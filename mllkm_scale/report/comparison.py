"""`write_comparison`: several runs side by side on one page."""

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
from mllkm_scale.report.comparison_pictures import comparison_pictures
from mllkm_scale.report.facts import cost_of_row, data_facts, gap_of, shown
from mllkm_scale.report.rendering import render, require_page, write_page
from mllkm_scale.report.run_files import Run, read_run

__all__ = ["write_comparison"]

UNKNOWN = "–"


@dataclass(frozen=True)
class Line:
    """A row of the table: a cell a run, and whether they differ."""

    name: str
    cells: tuple[str, ...]
    code: bool = False

    @property
    def differs(self) -> bool:
        """Whether the runs are not all the same here."""
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
        pictures=comparison_pictures(runs, names, facts),
        version=__version__,
    )
    return write_page(Path(out), page)


def _names(runs: Sequence[Run]) -> list[str]:
    """The folders' names; with more of the path where two are called alike."""
    counts = Counter(run.name for run in runs)
    return [run.name if counts[run.name] == 1 else str(run.path) for run in runs]


def _lines(runs: Sequence[Run], facts: Sequence[Description | None]) -> list[Line]:
    """What is known of at least one run."""

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
    """The parameters that are not the same in all runs."""
    names = dict.fromkeys(name for run in runs for name in run.parameters)
    lines = [
        Line(name, tuple(shown(run.parameters[name]) if name in run.parameters else UNKNOWN for run in runs), code=True)
        for name in names
    ]
    return [line for line in lines if line.differs]
