"""The data sets of the table `entries.toml`: fetched ones, and those made from them."""

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
        Names for the command line and for texts.
    rows : tuple of int
        Training rows and, if the data set has a split, test rows.
    n_features, n_classes : int
        Columns of X, and classes of y: codes from `first_label` on.
    decimals : int
        Number of decimals of the published values.
    content, ordered : str
        Checksums of the rows in any order and in this order (`mllkm_scale.data.catalogue.content`).
    about : str
        A description, with the source.
    routes : tuple of Route
        The routes to it, in the order in which they are tried.
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
        """Checksums of all valid results of a route."""
        return frozenset({self.content, *(route.content for route in self.routes if route.content is not None)})


@dataclass(frozen=True, kw_only=True)
class GeneratedEntry:
    """A data set that is made from the images of another one.

    Attributes
    ----------
    name, title, about : str
        As in `CatalogueEntry`.
    base : str
        The data set of the originals.
    rows : tuple of int
        Largest number of training rows, and test rows, which are those of the originals.
    image : tuple of int
        Height and width of an image.
    n_classes : int
        Classes of y.
    copies : tuple of str
        For each copy of all originals, the beginning of the sha256 of its images and labels.
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
        """Number of rows of a copy of the originals."""
        return self.rows[0] // len(self.copies)


def route_of(**row: Any) -> Route:
    """A route from its columns; those of its package are in the table of packages."""
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
    """The entry with this name.

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
