"""Table 2 as Markdown, CSV and LaTeX, and its mean ranks as a picture with the critical difference (Demsar 2006)."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from mllkm_scale.base.arrays import Array
from mllkm_scale.base.files.whole import write_whole
from mllkm_scale.report.style import BLUE, GREY, styled
from mllkm_scale.reproduce.methods import GROUPS
from mllkm_scale.reproduce.parts import markdown_table
from mllkm_scale.reproduce.significance import Ranks
from mllkm_scale.reproduce.table2 import PairedComparison, Row, Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["as_csv", "as_latex", "as_markdown", "draw_ranks", "splits_csv", "write"]

LEVEL = 0.05


@styled
def draw_ranks(methods: Sequence[str], ranks: Ranks) -> Figure:
    """Methods from best to worst; the shaded area has those that do not differ from the best by Nemenyi's test."""
    from matplotlib.figure import Figure

    order = ranks.mean.argsort(kind="stable")
    means, names = ranks.mean[order], [methods[i] for i in order]
    figure = Figure(figsize=(5.5, 0.22 * len(names) + 0.9))
    axes = figure.subplots()
    for place, (mean, name) in enumerate(zip(means, names, strict=True)):
        ours = name.startswith("MLLKM")
        axes.plot([0.5, mean], [place, place], color="#dddddd", lw=0.6, zorder=1)
        axes.plot(mean, place, "o", color=BLUE if ours else GREY, ms=4.5, zorder=3)
    best, reach = means[0], min(means[0] + ranks.critical_difference, len(names) + 0.5)
    axes.axvspan(best, reach, color=BLUE, alpha=0.08, lw=0)
    axes.plot([best, reach], [-0.75, -0.75], color=BLUE, lw=2.5, solid_capstyle="butt")
    text = f"critical difference {ranks.critical_difference:.2f}: no significant difference from the best"
    axes.text(best, -0.95, text, fontsize=7, color=BLUE, va="bottom")
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.4, -1.6)
    axes.set_xlim(0.5, len(names) + 0.5)
    axes.set_xlabel(f"mean rank over the data sets (Friedman's test: p = {ranks.friedman_p:.3f})")
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    return figure


def write(table: Table, folder: Path) -> list[Path]:
    """table2.md, table2.csv, table2-splits.csv, table2.tex and, for two data sets or more, the ranks as a picture."""
    texts = {
        "table2.md": as_markdown(table),
        "table2.csv": as_csv(table),
        "table2-splits.csv": splits_csv(table),
        "table2.tex": as_latex(table),
    }
    for name, text in texts.items():
        write_whole(folder / name, text)
    paths = [folder / name for name in texts]
    if table.ranks is not None:
        from mllkm_scale.report.style import save

        paths += save(draw_ranks(table.methods, table.ranks), folder / "table2-ranks")
    return paths


def as_markdown(table: Table) -> str:
    """The table with the paper's figures beside it, the tests and the ranks."""
    lines = [f"# Table 2: {table.setting.splits} random splits of 70/30, C = 100", "", _reading(table), ""]
    for name in table.data:
        lines += [f"## {name}", ""]
        head = ["method", "accuracy (%)", "paper", "inference (ms)", "kernels x support vectors", "paper"]
        lines += [*markdown_table(head, (_cells(row, _leading(table, row)) for row in table.of(name))), ""]
        compared = [c for c in table.comparisons if c.data == name]
        if compared:
            lines += [f"{compared[0].ours}, the best MLLKM here, against the other methods:", ""]
            head = ["against", "difference (points)", "Wilcoxon p", "corrected t p", "Holm p", "significant"]
            lines += [*markdown_table(head, (_compared(c) for c in compared)), ""]
    if table.ranks is not None:
        lines += ["## Ranks over the data sets", ""]
        order = table.ranks.mean.argsort(kind="stable")
        lines += markdown_table(
            ["method", "mean rank"], ([table.methods[i], f"{table.ranks.mean[i]:.2f}"] for i in order)
        )
        lines += [
            "",
            f"Friedman's test: p = {table.ranks.friedman_p:.3f}. Two methods differ by Nemenyi's test (5 %) if their"
            f" mean ranks differ by more than {table.ranks.critical_difference:.2f}.",
            "",
        ]
    return "\n".join(lines)


def as_csv(table: Table) -> str:
    """A line for every method and data set: means and deviations over the splits, and the paper's."""
    head = ["data", "group", "method", "accuracy", "accuracy_std", "predict_ms", "predict_ms_std", "train_s"]
    head += ["kernels", "kernels_std", "support", "support_std"]
    head += ["paper_accuracy", "paper_accuracy_std", "paper_predict_ms", "paper_kernels", "paper_support"]
    lines = []
    for row in table.rows:
        figures = [row.accuracy.mean(), row.accuracy.std(), row.predict_ms.mean(), row.predict_ms.std()]
        figures += [row.train_s.mean(), row.kernels.mean(), row.kernels.std(), row.support.mean(), row.support.std()]
        paper = row.paper
        printed = [paper.accuracy, paper.deviation, paper.time_ms, paper.kernels, paper.support] if paper else [""] * 5
        lines.append([row.data, row.group, row.method, *(f"{figure:.6g}" for figure in figures), *printed])
    return _csv(head, lines)


def splits_csv(table: Table) -> str:
    """A line for every method, data set and split: what the tests are computed from."""
    lines = [
        [row.data, row.method, table.setting.first_seed + i, *(f"{column[i]:.9g}" for column in _columns(row))]
        for row in table.rows
        for i in range(len(row.accuracy))
    ]
    return _csv(["data", "method", "seed", "accuracy", "predict_ms", "train_s", "kernels", "support"], lines)


def as_latex(table: Table) -> str:
    """The table of the paper, for booktabs: bold where no method is significantly better than the row."""
    lines = [
        r"% \usepackage{booktabs}",
        r"\begin{tabular}{lrrr}",
        r"\toprule",
        r"method & accuracy (\%) & inference (ms) & \#kernels $\times$ \#support vectors \\",
    ]
    for name in table.data:
        lines += [r"\midrule", rf"\multicolumn{{4}}{{c}}{{{_escaped(name)}}} \\", r"\midrule"]
        group = GROUPS[0]
        for row in table.of(name):
            if row.group != group:
                group = row.group
                lines.append(r"\addlinespace")
            accuracy = f"{row.accuracy.mean():.1f}"
            accuracy = rf"\textbf{{{accuracy}}}" if _leading(table, row) else accuracy
            size = f"{row.kernels.mean():.1f}" if row.kernels.std() else f"{row.kernels.mean():.0f}"
            support = f"{row.support.mean():.1f}" if row.support.std() else f"{row.support.mean():.0f}"
            cells = [rf"{accuracy} $\pm$ {row.accuracy.std():.1f}", f"{row.predict_ms.mean():.2f}"]
            lines.append(rf"{_escaped(row.method)} & {cells[0]} & {cells[1]} & {size} $\times$ {support} \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", ""])


def _reading(table: Table) -> str:
    local = "affine" if table.setting.local_bias else "linear, as in the paper"
    return (
        "Mean and standard deviation over the splits; inference is of all test rows, the shortest of several"
        " predictions on one thread. **Bold**: no method of the data set is better with p < 0.05 by the corrected"
        f" resampled t-test. Local predictors of MLLKM are {local}."
    )


def _leading(table: Table, row: Row) -> bool:
    """Whether the method with the best mean is not significantly better."""
    from mllkm_scale.reproduce.measure import TRAIN_SHARE
    from mllkm_scale.reproduce.significance import corrected_t_test

    best = max(table.of(row.data), key=lambda other: other.accuracy.mean())
    if best is row:
        return True
    if len(row.accuracy) < 2:
        return False
    return corrected_t_test(best.accuracy - row.accuracy, 1.0 - TRAIN_SHARE) >= LEVEL


def _cells(row: Row, leading: bool) -> list[str]:
    accuracy = f"{row.accuracy.mean():.1f}"
    size = f"{row.kernels.mean():.1f} x {row.support.mean():.1f}"
    return [
        row.method,
        f"{f'**{accuracy}**' if leading else accuracy} ± {row.accuracy.std():.1f}",
        f"{row.paper.accuracy:.1f} ± {row.paper.deviation:.1f}" if row.paper else "",
        f"{row.predict_ms.mean():.2f} ± {row.predict_ms.std():.2f}",
        size.replace(".0 ", " ").removesuffix(".0"),
        f"{row.paper.kernels:g} x {row.paper.support:g}" if row.paper else "",
    ]


def _compared(comparison: PairedComparison) -> list[str]:
    test = comparison.test
    verdict = "no" if comparison.holm_p >= LEVEL else ("better" if test.difference > 0 else "worse")
    p_values = [f"{p:.3f}" for p in (test.wilcoxon_p, test.corrected_t_p, comparison.holm_p)]
    return [comparison.method, f"{test.difference:+.1f}", *p_values, verdict]


def _columns(row: Row) -> tuple[Array, ...]:
    return row.accuracy, row.predict_ms, row.train_s, row.kernels, row.support


def _csv(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(head)
    writer.writerows(rows)
    return text.getvalue()


def _escaped(text: str) -> str:
    for sign in "&%$#_{}":
        text = text.replace(sign, rf"\{sign}")
    return text
