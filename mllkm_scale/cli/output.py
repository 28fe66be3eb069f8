"""Output of the commands: text, tables or JSON on stdout, and progress bars on stderr.

Results are tables on a terminal that can show them, and plain text in pipes, files and dumb terminals. Rich respects
NO_COLOR.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mllkm_scale.base.events import PROGRESS_MODES
from mllkm_scale.base.wording import clock, percent
from mllkm_scale.cli.group import say
from mllkm_scale.errors import ModelFileError
from mllkm_scale.printable import printable
from mllkm_scale.run.folder import MODEL, RunFolder

if TYPE_CHECKING:
    from rich.table import Table as RichTable

    from mllkm_scale.model.model import Model

__all__ = [
    "Facts",
    "Table",
    "bar",
    "columns_ignored",
    "jobs_option",
    "json_option",
    "model_path",
    "open_model",
    "overwrite_option",
    "plain_table",
    "print_json",
    "progress_option",
    "tell",
    "wants_model",
]

STYLES = {"ok": "green", "warning": "yellow", "problem": "bold red"}
LINE_EVERY_S = 10.0  # without a terminal for a progress bar
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")
overwrite_option = click.option("--overwrite", is_flag=True, help="Replace an existing target.")
wants_model = click.argument("model", type=click.Path(path_type=Path))


@dataclass(frozen=True)
class Table:
    """Headings and rows of text.

    A heading with a leading ``>`` is of a right-aligned column, and an empty heading is of levels such as "ok".
    """

    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    title: str = ""


@dataclass(frozen=True)
class Facts:
    """Names and values."""

    values: Mapping[str, str] = field(default_factory=dict)


Part = str | Table | Facts


def tell(plain: Callable[[], str], parts: Callable[[], Iterable[Part]]) -> None:
    """Print the parts on a terminal that can show tables, and the plain text otherwise."""
    if not _shows_tables():
        say(plain())
        return
    from rich.console import Console

    # Names of files and classes are shown literally: "[a]" is no markup, and ":on:" no emoji.
    console = Console(file=sys.stdout, highlight=False, markup=False, emoji=False)
    for part in parts():
        console.print(printable(part, keep="\n") if isinstance(part, str) else _drawn(part))


def plain_table(table: Table) -> str:
    """A table as plain text, with columns of the width of their longest text.

    >>> print(plain_table(Table(["name", ">rows"], [["usps", "7,291"], ["wine", "178"]])))
    name   rows
    usps  7,291
    wine    178
    """
    names = [heading.removeprefix(">") for heading in table.headings]
    rows = [[printable(cell) for cell in row] for row in table.rows]
    widths = [max(len(row[place]) for row in [names, *rows]) for place in range(len(names))]
    right = [heading.startswith(">") for heading in table.headings]
    lines = [
        "  ".join(
            text.rjust(width) if flush else text.ljust(width)
            for text, width, flush in zip(row, widths, right, strict=True)
        ).rstrip()
        for row in [names, *rows]
    ]
    return "\n".join([printable(table.title), *lines] if table.title else lines)


def _shows_tables() -> bool:
    return sys.stdout.isatty() and os.environ.get("TERM", "dumb") not in ("dumb", "unknown")


def _drawn(part: Table | Facts) -> RichTable:
    from rich import box
    from rich.table import Table as RichTable
    from rich.text import Text

    if isinstance(part, Facts):
        grid = RichTable.grid(padding=(0, 2))
        grid.add_column(style="bold", no_wrap=True)
        grid.add_column(overflow="fold")
        for name, value in part.values.items():
            grid.add_row(printable(name), printable(value))
        return grid
    drawn = RichTable(box=box.SIMPLE_HEAD, title=part.title or None, title_justify="left", title_style="bold")
    for heading in part.headings:
        options: dict[str, Any] = {"justify": "right", "no_wrap": True} if heading.startswith(">") else {}
        drawn.add_column(heading.removeprefix(">"), overflow="fold", **options)
    for row in part.rows:
        cells = zip(part.headings, row, strict=True)
        drawn.add_row(
            *(Text(printable(cell), style="" if heading else STYLES.get(cell, "")) for heading, cell in cells)
        )
    return drawn


def _as_configured(key: str) -> Callable[[click.Context, click.Parameter, Any], Any]:
    """Callback of an option: the configured value if it is not given."""

    def value_of(context: click.Context, parameter: click.Parameter, value: Any) -> Any:
        from mllkm_scale.config import configured

        return configured(key) if value is None and not context.resilient_parsing else value

    return value_of


jobs_option = click.option(
    "--n-jobs",
    "--jobs",
    "n_jobs",
    type=int,
    callback=_as_configured("n-jobs"),
    help="Threads; -1 for one per core.  [default: -1]",
)
progress_option = click.option(
    "--progress",
    type=click.Choice(PROGRESS_MODES),
    callback=_as_configured("progress"),
    help="auto: live on a terminal, plain lines elsewhere. json: one object per event, on stdout.  [default: auto]",
)


def print_json(value: Any, *, indent: int | None = 2) -> None:
    """Print a value as JSON."""
    from mllkm_scale.run.progress.listeners import jsonable

    say(json.dumps(jsonable(value), indent=indent, allow_nan=False))


def model_path(path: Path) -> Path:
    """The model file of a run folder, or the path itself."""
    return path / MODEL if path.is_dir() else path


def open_model(path: Path) -> Model:
    """The model of a file or a run folder; a message says if the run is not finished."""
    from mllkm_scale.model import load_model

    file = model_path(path)
    if path.is_dir() and not file.exists() and RunFolder(path).resumable:
        raise ModelFileError(f"the training in {path} has no model yet: continue it with mllkm train --resume")
    model = load_model(file)
    if model.certificate.status == "interrupted":
        told = f"{path}: the training was interrupted, and its model has a gap of {percent(model.certificate.gap)}"
        say(f"{told}: mllkm train --resume continues it", err=True)
    return model


def columns_ignored(where: str, ignored: tuple[str, ...]) -> str:
    """The message about columns of a table that are not features of a model."""
    from mllkm_scale.model.names import ignored_columns

    return ignored_columns(where, ignored)


@contextmanager
def bar(label: str) -> Iterator[Callable[[int, int], None]]:
    """Progress on stderr, reported as ``progress(done, total)``: a bar on a terminal, occasional lines elsewhere."""
    if not sys.stderr.isatty():
        yield _lines_now_and_then(label)
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}", markup=False),  # a name such as [a].csv is shown literally
        BarColumn(),
        TaskProgressColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True, redirect_stdout=False) as shown:
        task = shown.add_task(printable(label), total=None)
        yield lambda done, total: shown.update(task, completed=done, total=total)


def _lines_now_and_then(label: str) -> Callable[[int, int], None]:
    """A function that prints a line every `LINE_EVERY_S` seconds."""
    started_s = told_s = time.monotonic()

    def tell(done: int, total: int) -> None:
        nonlocal told_s
        now_s = time.monotonic()
        if now_s - told_s >= LINE_EVERY_S and 0 < done < total:
            told_s = now_s
            left_s = (now_s - started_s) * (total - done) / done
            say(f"{label}: {100 * done / total:.0f} %, about {clock(left_s)} left", err=True)

    return tell
