"""`mllkm reproduce`: repeats the paper's table and figures, and the comparisons that its reviewers asked for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from mllkm_scale.cli.group import CommandGroup, debug_option, say

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from mllkm_scale.reproduce.table2 import Table

__all__ = ["reproduce"]

UCI = ("ionosphere", "sonar", "heart", "diabetes")
REVIEWERS = ("costs", "anchors", "maps", "memory", "gammas")
QUICK = ("heart",)
QUICK_SPLITS = 3
Command = TypeVar("Command", bound=Callable[..., Any])


def out_option(default: str) -> Callable[[Command], Command]:
    """Option for the output folder of a command."""
    return click.option(
        "--out",
        type=click.Path(path_type=Path, file_okay=False),
        default=Path("reproduced") / default,
        show_default=True,
        metavar="DIR",
        help="Folder for the results; an interrupted run in it is continued.",
    )


@click.group(cls=CommandGroup, short_help="Repeat the paper's experiments.")
@debug_option
def reproduce() -> None:
    """Repeat the paper's table and figures, and the comparisons that its reviewers asked for.

    Data are taken from the folder MLLKM_DATA, or downloaded as by `mllkm fetch`.

    \b
    Examples:
      mllkm reproduce table2 --quick
      mllkm reproduce figure2
      mllkm reproduce reviewers --only costs
    """


@reproduce.command(short_help="Accuracy, time and size on four UCI data sets.")
@out_option("table2")
@click.option("--quick", is_flag=True, help=f"{QUICK_SPLITS} splits of {QUICK[0]}, as a quick test.")
@click.option(
    "--data",
    multiple=True,
    metavar="NAME",
    help="A set of the catalogue, or a file with X and y; may be given several times.  [default: the paper's four]",
)
@click.option("--splits", type=click.IntRange(1), default=10, show_default=True, help="Random splits of 70/30.")
@click.option("--first-seed", type=click.IntRange(0), default=0, show_default=True, help="Seed of the first split.")
@click.option(
    "--linear", is_flag=True, help="Linear local predictors, as in the paper, instead of affine ones (local_bias=0)."
)
@click.option("--jobs", type=click.IntRange(1), default=None, metavar="N", help="Processes.  [default: one per core]")
@debug_option
def table2(
    out: Path, quick: bool, data: tuple[str, ...], splits: int, first_seed: int, linear: bool, jobs: int | None
) -> None:
    """The paper's Table 2: every method on random splits of 70/30 of the UCI sets, C = 100.

    MLLKM in all eight families, SAG, LLSVM, LaSVM, SimpleMKL and SequentialMKL: accuracy, inference time, kernels and
    support vectors beside the paper's figures, with paired tests over the splits and ranks over the data sets. Writes
    table2.md, table2.csv, table2-splits.csv, table2.tex and a picture of the ranks. All splits take about a quarter of
    an hour on two cores. The same command continues an interrupted run.

    \b
    Examples:
      mllkm reproduce table2 --quick
      mllkm reproduce table2
      mllkm reproduce table2 --data own.h5 --splits 5
    """
    from mllkm_scale.base.threads import n_threads
    from mllkm_scale.reproduce.measure import samples
    from mllkm_scale.reproduce.parts import Parts
    from mllkm_scale.reproduce.table2 import TableSetting, run
    from mllkm_scale.reproduce.write_table2 import write

    names = data or (QUICK if quick else UCI)
    setting = TableSetting(QUICK_SPLITS if quick else splits, first_seed, 0.0 if linear else "auto")
    data_sets = {Path(name).stem: samples(name, _say) for name in names}
    table = run(data_sets, setting, Parts(out / "parts"), jobs or n_threads(-1), _say)
    say(_summary(table))
    for path in write(table, out):
        say(f"written: {path}")


@reproduce.command(short_help="The eight maps on synthetic data.")
@out_option("figure1")
@debug_option
def figure1(out: Path) -> None:
    """The paper's Figure 1: synthetic data, and their images under the eight maps, as PNG and SVG."""
    from mllkm_scale.reproduce.figures import draw_figure1

    _draw(draw_figure1, out, "figure1")


@reproduce.command(short_help="Boundaries, support vectors and active kernels.")
@out_option("figure2")
@debug_option
def figure2(out: Path) -> None:
    """The paper's Figure 2: machines of the eight families on synthetic data, C = 1000, as PNG and SVG.

    Outputs as a heat map, true and learned boundary, support vectors as circles, anchors of active kernels as squares.
    """
    from mllkm_scale.reproduce.figures import draw_figure2

    _draw(draw_figure2, out, "figure2")


@reproduce.command(short_help="The comparisons that the reviewers asked for.")
@out_option("reviewers")
@click.option(
    "--only",
    multiple=True,
    type=click.Choice(REVIEWERS),
    help="One of the comparisons; may be given several times.  [default: all]",
)
@click.option("--quick", is_flag=True, help="Small and few comparisons, as a quick test.")
@debug_option
def reviewers(out: Path, only: tuple[str, ...], quick: bool) -> None:
    """The comparisons that the paper's reviewers asked for, on letter, USPS, MNIST, Covertype and ijcnn1, if available.

    \b
    costs    error and prediction time, compared with LLSVM, LDKL, DC-Pred++, Nystroem and SVC
    anchors  all samples as anchors, random samples, and k-means centres
    maps     locally linear, Gaussian and linear maps in the same MKL
    memory   peak memory over the number of samples
    gammas   the chosen gammas, and the effect of a finer grid

    Writes a JSON file, a table in Markdown and a picture for each. The same command continues an interrupted run. All
    comparisons take about an hour on two cores.
    """
    from mllkm_scale.reproduce.reviewers.write import run

    for path in run(only or REVIEWERS, out, _say, quick):
        say(f"written: {path}")


def _draw(draw: Callable[[], Figure], out: Path, name: str) -> None:
    from mllkm_scale.base.files.folders import writing
    from mllkm_scale.report.style import save

    with writing(out):
        out.mkdir(parents=True, exist_ok=True)
    for path in save(draw(), out / name):
        say(f"written: {path}")


def _say(line: str) -> None:
    say(line, err=True)


def _summary(table: Table) -> str:
    """The best method of each group for every data set, and the results of the tests."""
    from mllkm_scale.reproduce.methods import GROUPS

    lines = []
    for name in table.data:
        best = [max((r for r in table.of(name) if r.group == g), key=lambda r: r.accuracy.mean()) for g in GROUPS]
        found = ";  ".join(f"{row.method} {row.accuracy.mean():.1f} ± {row.accuracy.std():.1f} %" for row in best)
        lines.append(f"{name:<12} {found}")
    return "\n".join(lines)
