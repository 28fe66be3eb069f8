"""Writes the tables of docs/defaults.md from the JSON files of the jobs in results/.

    python jobs/bench/defaults_page.py [--results results] [--page docs/defaults.md] [--check]

A table is between the marks <!-- NAME --> and <!-- /NAME --> of the page, where NAME is that of its job. A table is
replaced if its file exists. With --check nothing is written, and the exit code shows whether the page has the figures
of the files.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from scale_page import ROOT, figure, fill_page, table

METHODS = {"mllkm": "MLLKM", "svc": "SVC", "lightgbm": "LightGBM"}
MACHINES = {
    "mllkm": "MLLKM",
    "svc": "SVC, C = 10, gamma = 1 / d",
    "tuned_svc": "SVC, both by cross-validation",
    "ldkl3": "LDKL, depth 3",
    "ldkl6": "LDKL, depth 6",
}
Result = dict[str, Any]


def main() -> None:
    fill_page(ROOT / "docs" / "defaults.md", SECTIONS, __doc__.splitlines()[0])


def tables(result: Result) -> list[str]:
    """A row for each table, one of means and total times, and the comparison over the tables."""
    methods = [name for name in result["setting"]["methods"] if name not in result["missing"]]
    titles = [METHODS[name] for name in methods]
    head = ["table", "rows", "features", "classes", *titles, *(f"{title}, training" for title in titles), "kernels"]
    rows = [table_row(name, row, methods) for name, row in result["tables"].items()]
    found = result["summary"]
    if "mean_error" in found:
        errors = [f"{100 * found['mean_error'][name]:.2f}" for name in methods]
        seconds = [seconds_of(found["train_s"][name]) for name in methods]
        rows.append(["mean error, total time", "", "", "", *errors, *seconds, ""])
    lines = [*table(head, rows), ""]
    if result["params"]:
        changed = ", ".join(f"{name} = {value}" for name, value in result["params"].items())
        lines.append(f"MLLKM with {changed}.")
    return [*lines, *comparison(found, methods)]


def selection(result: Result) -> list[str]:
    """The mean test error of the winner of each set of contenders."""
    rows = [[title, f"{100 * error:.2f} %"] for title, error in result["means"].items()]
    n = result["setting"]["splits"]
    return [
        *table(["contenders", "mean error of the winner"], rows),
        "",
        f"{n} splits of {len(result['tables'])} tables.",
    ]


def table_row(name: str, row: Result, methods: list[str]) -> list[str]:
    """Errors in percent with their deviation over the splits, the lowest in bold; and seconds of a training run."""
    if "missing" in row:
        return [name, "missing", *[""] * (3 + 2 * len(methods))]
    found = [row["methods"][method] for method in methods]
    lowest = min((one["error"] for one in found if not one["failed"]), default=None)
    errors, seconds = [], []
    for one in found:
        if one["failed"]:
            errors.append(f"failed on {one['failed']} of {row['splits']} splits")
        else:
            mean = f"{100 * one['error']:.2f}"
            errors.append(f"{f'**{mean}**' if one['error'] == lowest else mean} ± {100 * one['std']:.2f}")
        seconds.append(seconds_of(one["train_s"]) if "train_s" in one else "")
    kernels = row["methods"].get("mllkm", {}).get("kernels")
    sizes = [f"{row['rows']:,}", str(row["features"]), str(row["classes"])]
    return [name, *sizes, *errors, *seconds, "" if kernels is None else f"{kernels:.0f}"]


def comparison(found: Result, methods: list[str]) -> list[str]:
    """Ranks, wins and losses, and times as multiples of SVC's, in sentences."""
    lines = []
    if found["left_out"]:
        lines.append(f"Means and ranks leave out {', '.join(found['left_out'])}.")
    if "critical_difference" in found:
        places = ", ".join(f"{METHODS[name]} {found['mean_rank'][name]:.2f}" for name in methods)
        friedman = "" if found["friedman_p"] is None else f"Friedman's test has p = {found['friedman_p']:.2g}; "
        lines.append(
            f"Mean ranks over {found['tables']} tables: {places}. {friedman}two mean ranks differ significantly (5 %,"
            f" Nemenyi) if they are {found['critical_difference']:.2f} apart."
        )
    for name, counts in found.get("against", {}).items():
        lines.append(
            f"Against {METHODS[name]}, MLLKM wins {counts['wins']}, ties {counts['ties']} and loses {counts['losses']};"
            f" {counts['clear_wins']} wins and {counts['clear_losses']} losses are significant (corrected t-test, 5 %)."
        )
    for name, ratio in found.get("times_svc", {}).items():
        if name != "svc":
            lines.append(f"{METHODS[name]} takes {figure(ratio)} times the training time of SVC and its grid search.")
    return lines


def letter(result: Result) -> list[str]:
    head = ["", "test error", "training", "prediction of a row", "size"]
    rows = []
    for name, row in result["machines"].items():
        figures = [
            f"{row['test_error_percent']:.2f} %",
            seconds_of(row["train_s"]),
            f"{figure(row['predict_us_a_row'])} us",
        ]
        rows.append([MACHINES[name], *figures, row["size"]])
    return table(head, rows)


def seconds_of(seconds: float) -> str:
    return f"{figure(seconds)} s"


SECTIONS: dict[str, Callable[[Result], list[str]]] = {
    "tables": tables,
    "other_tables": tables,
    "letter": letter,
    "selection": selection,
}


if __name__ == "__main__":
    main()
