"""How the commands tell: text or JSON on stdout, bars on stderr."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from mllkm_scale.base.events import PROGRESS_MODES
from mllkm_scale.base.wording import clock
from mllkm_scale.cli.group import say
from mllkm_scale.run.folder import MODEL

__all__ = [
    "bar",
    "columns_ignored",
    "jobs_option",
    "json_option",
    "model_path",
    "overwrite_option",
    "print_json",
    "progress_option",
    "wants_model",
]

LINE_EVERY_S = 10.0  # where there is no terminal for a bar

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")


def _as_configured(key: str) -> Callable[[click.Context, click.Parameter, Any], Any]:
    """Callback of an option: what is configured, where it is not given."""

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
overwrite_option = click.option("--overwrite", is_flag=True, help="Replace an existing target.")
progress_option = click.option(
    "--progress",
    type=click.Choice(PROGRESS_MODES),
    callback=_as_configured("progress"),
    help="auto: live on a terminal, plain lines elsewhere. json: one object per event, on stdout.  [default: auto]",
)
wants_model = click.argument("model", type=click.Path(path_type=Path))


def print_json(value: Any, *, indent: int | None = 2) -> None:
    """Print a value as JSON."""
    from mllkm_scale.run.progress.choose import jsonable

    say(json.dumps(jsonable(value), indent=indent, allow_nan=False))


def model_path(path: Path) -> Path:
    """The model file of a run folder, or the path as it is."""
    return path / MODEL if path.is_dir() else path


def columns_ignored(where: str, ignored: tuple[str, ...]) -> str:
    """The line that says which columns of a table are no features of a model."""
    from mllkm_scale.model.names import ignored_columns

    return ignored_columns(where, ignored)


@contextmanager
def bar(label: str) -> Iterator[Callable[[int, int], None]]:
    """Progress on stderr, told as ``progress(done, total)``: a bar on a terminal, a line now and then elsewhere."""
    if not sys.stderr.isatty():
        yield _lines_now_and_then(label)
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}", markup=False),  # a name such as [a].csv is shown as it is
        BarColumn(),
        TaskProgressColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True, redirect_stdout=False) as shown:
        task = shown.add_task(label, total=None)
        yield lambda done, total: shown.update(task, completed=done, total=total)


def _lines_now_and_then(label: str) -> Callable[[int, int], None]:
    """What prints a line every `LINE_EVERY_S` seconds; nothing for what is done sooner."""
    started_s = told_s = time.monotonic()

    def tell(done: int, total: int) -> None:
        nonlocal told_s
        now_s = time.monotonic()
        if now_s - told_s >= LINE_EVERY_S and 0 < done < total:
            told_s = now_s
            left_s = (now_s - started_s) * (total - done) / done
            say(f"{label}: {100 * done / total:.0f} %, about {clock(left_s)} left", err=True)

    return tell
