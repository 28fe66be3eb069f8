"""The data sets of the table `entries.toml`: those that are fetched, and those that are made from them."""

from __future__ import annotations

import difflib
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mllkm_scale.data.catalogue.routes import Route
from mllkm_scale.errors import ParameterError

__all__ = ["ENTRIES", "GENERATED", "CatalogueEntry", "GeneratedEntry", "find", "route_of"]

_TABLE: dict[str, Any] = tomllib.loads((Path(__file__).parent / "entries.toml").read_text(encoding="utf-8"))


@dataclass(frozen=True, kw_only=True)
class CatalogueEntry:
    """A data set of the catalogue.

    Attributes
    ----------
    name, title : str
        Its names on the command line and in texts.
    rows : tuple of int
        Rows to train on and, where a split is part of the data set, rows to test on.
    n_features, n_classes : int
        Columns of X, and classes of y: codes from `first_label` on.
    decimals : int
        Decimals that the values are published with.
    content, ordered : str
        Checksums of the rows in any order and in this one (`mllkm_scale.data.catalogue.content`).
    about : str
        What it is, what a user has to know of it, and where it is from.
    routes : tuple of Route
        The routes to it, in the order of trying.
    """

    name: str
    title: str
    rows: tuple[int, ...]
    n_features: int
    n_classes: int
    first_label: int = 0
    decimals: int
    content: str
    ordered: str
    about: str
    routes: tuple[Route, ...]

    @property
    def contents(self) -> frozenset[str]:
        """Checksums of all that a route may bring."""
        return frozenset({self.content, *(route.content for route in self.routes if route.content is not None)})


@dataclass(frozen=True, kw_only=True)
class GeneratedEntry:
    """A data set that is made from the images of another one.

    Attributes
    ----------
    name, title, about : str
        As of a `CatalogueEntry`.
    base : str
        The data set of the originals.
    rows : tuple of int
        Rows to train on, at most, and rows to test on, which are those of the originals.
    image : tuple of int
        Height and width of an image.
    n_classes : int
        Classes of y.
    copies : tuple of str
        Of each copy of all originals, the beginning of the sha256 of its images and labels.
    """

    name: str
    title: str
    base: str
    rows: tuple[int, int]
    image: tuple[int, int]
    n_classes: int
    about: str
    copies: tuple[str, ...]

    @property
    def n_features(self) -> int:
        return self.image[0] * self.image[1]

    @property
    def copy_rows(self) -> int:
        """Rows of a copy of the originals."""
        return self.rows[0] // len(self.copies)


def route_of(**row: Any) -> Route:
    """A route by its columns; those of its package come from the table of packages."""
    row |= _TABLE["packages"][row["package"]] if "package" in row else {}
    columns: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in row.items()}
    return Route(**columns | {"labels": tuple(row["labels"])})


ENTRIES = {
    name: CatalogueEntry(
        **row
        | {"name": name, "rows": tuple(row["rows"]), "routes": tuple(route_of(**route) for route in row["routes"])}
    )
    for name, row in _TABLE["datasets"].items()
}
GENERATED = {
    name: GeneratedEntry(**row | {"name": name} | {key: tuple(row[key]) for key in ("rows", "image", "copies")})
    for name, row in _TABLE["generated"].items()
}


def find(name: str) -> CatalogueEntry:
    """The entry of a name.

    >>> find("letter").rows
    (20000,)
    """
    if name in GENERATED:
        raise ParameterError(
            f"{name} has too many rows for arrays: make a file of it with mllkm fetch {name}, and open it"
        )
    if name not in ENTRIES:
        near = difflib.get_close_matches(name, [*ENTRIES, *GENERATED], n=1)
        hint = f"did you mean {near[0]}? " if near else ""
        raise ParameterError(f"{name!r} is not in the catalogue: {hint}It has {', '.join([*ENTRIES, *GENERATED])}")
    return ENTRIES[name]
