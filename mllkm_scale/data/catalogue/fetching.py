"""From an entry of the catalogue to verified arrays: routes are tried in order until one brings the content."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import accumulate, permutations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mllkm_scale.data.catalogue.content import Fingerprint, Part, canonical, fingerprint
from mllkm_scale.data.catalogue.entries import CatalogueEntry
from mllkm_scale.data.catalogue.routes import Route, RouteError
from mllkm_scale.errors import FetchError, ParameterError

__all__ = ["Notice", "Verified", "download"]

Array = NDArray[Any]
Notice = Callable[[str], None]


@dataclass(frozen=True, eq=False)
class Verified:
    """X and y of every part, as the catalogue has them, where they are from, and their checksums."""

    parts: tuple[Part, ...]
    origin: str
    checksums: Fingerprint


def download(entry: CatalogueEntry, kind: str | None, *, notice: Notice, progress: Notice) -> Verified:
    """Try the routes of an entry, all or those of one kind, until one brings the content of the catalogue.

    `progress` is told which route is tried, and `notice` why one has failed.

    Raises
    ------
    FetchError
        If none does; the message has the reason of each, and the remedy.
    """
    routes = [route for route in entry.routes if kind in (None, route.kind)]
    if not routes:
        known = ", ".join(sorted({route.kind for route in entry.routes}))
        raise ParameterError(f"{entry.name} has no route {kind!r}: leave it out, or choose {known}")
    reasons = []
    for route in routes:
        progress(f"{entry.name}: asking {route.title}")
        try:
            return _arrive(entry, route)
        except RouteError as error:
            reasons.append(f"{route.title}: {error}")
            notice(f"{entry.name}: {route.title}: {error}")
    arrays = "X, y" if len(entry.rows) == 1 else "X, y, X_test and y_test"
    raise FetchError(
        f"{entry.name} cannot be fetched ({'; '.join(reasons)}): try again when the network is there, or set MLLKM_DATA"
        f" to a folder that has {entry.name}.npz with the arrays {arrays}"
    )


def _arrive(entry: CatalogueEntry, route: Route) -> Verified:
    table = route.read()
    codes = _codes(table.labels, route.labels) + entry.first_label
    try:
        X = table.X if route.change is None else route.change(table.X)
    except (ValueError, IndexError) as error:
        raise RouteError("its columns are not those of the catalogue") from error
    if X.shape != (len(codes), entry.n_features) or X.dtype.kind not in "fiub":
        raise RouteError(f"it has X of shape {X.shape} and type {X.dtype}, not {entry.n_features} features of numbers")
    if not np.isfinite(X).all():
        raise RouteError("it has missing values")
    X, expected = canonical(X, entry.decimals), route.content or entry.content
    for parts in _arrangements(X, codes, entry.rows, route.extra_parts):
        found = fingerprint(parts, entry.decimals)
        if found.content == expected:
            remarks = [route.note] if route.note else []
            if route.content is None and found.ordered != entry.ordered:
                remarks.append("rows in another order than the catalogue's")
            return Verified(parts, ", ".join([route.title, *remarks]), found)
    raise RouteError("its content is not that of the catalogue (checksum)")


def _codes(labels: list[str], names: tuple[str, ...]) -> Array:
    places = {name: code for code, name in enumerate(names)}
    try:
        return np.array([places[label] for label in labels], dtype=np.int32)
    except KeyError as error:
        raise RouteError(f"it has the label {error}, which the catalogue does not know") from None


def _arrangements(X: Array, y: Array, rows: tuple[int, ...], extra: tuple[int, ...]) -> Iterator[tuple[Part, ...]]:
    """The ways in which a file may be a sequence of the parts; the checksum tells which one it is."""
    sizes = rows + extra
    if sum(sizes) != len(y):
        raise RouteError(f"it has {len(y)} rows, the catalogue {sum(sizes)}")
    seen = set()
    for order in permutations(range(len(sizes))):
        ends = dict(zip(order, accumulate(sizes[part] for part in order), strict=True))
        wanted = tuple((ends[part] - sizes[part], ends[part]) for part in range(len(rows)))
        if wanted not in seen:
            seen.add(wanted)
            yield tuple((X[start:stop], y[start:stop]) for start, stop in wanted)
