"""From the routes of an entry to verified arrays: routes are tried in order until one has the right content."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import accumulate, permutations

import numpy as np

from mllkm_scale.data.catalogue.content import Array, Part, canonical, fingerprint
from mllkm_scale.data.catalogue.entries import CatalogueEntry
from mllkm_scale.data.catalogue.readers import one_hot
from mllkm_scale.data.catalogue.routes import Route, RouteError
from mllkm_scale.errors import FetchError, ParameterError

__all__ = ["Notice", "download"]

Notice = Callable[[str], None]
Verified = tuple[tuple[Part, ...], str, str]


def download(entry: CatalogueEntry, kind: str | None, *, notice: Notice, progress: Notice) -> Verified:
    """X and y of each part, their origin and their checksum, from the first route that has the right content.

    Only routes of one `kind` are tried if it is given. `progress` receives the route that is tried, and `notice` the
    reason why one failed. The `FetchError` after the last one has all reasons.
    """
    routes = [route for route in entry.routes if kind in (None, route.kind)]
    if not routes:
        known = ", ".join(sorted({route.kind for route in entry.routes}))
        raise ParameterError(f"{entry.name} has no route {kind!r}: leave it out, or choose {known}")
    reasons = []
    for route in routes:
        progress(f"{entry.name}: asking {route.title}")
        try:
            return _verified(entry, route)
        except RouteError as error:
            reasons.append(f"{route.title}: {error}")
            notice(f"{entry.name}: {route.title}: {error}")
    arrays = "X, y" if len(entry.rows) == 1 else "X, y, X_test and y_test"
    raise FetchError(
        f"{entry.name} cannot be fetched ({'; '.join(reasons)}): try again when the network is there, or set MLLKM_DATA"
        f" to a folder that has {entry.name}.npz with the arrays {arrays}"
    )


def _verified(entry: CatalogueEntry, route: Route) -> Verified:
    X, labels = route.read()
    codes = {label: code for code, label in enumerate(route.labels, entry.first_label)}
    if unknown := sorted(set(labels) - set(codes)):
        raise RouteError(f"it has the label {unknown[0]!r}, which the catalogue does not know")
    y = np.array([codes[label] for label in labels], dtype=np.int32)
    X = one_hot(X) if X.dtype.kind == "U" else X
    if X.shape != (len(y), entry.n_features):
        raise RouteError(f"it has X of shape {X.shape}, not {entry.n_features} features")
    if route.lows:
        low, high = np.array(route.lows), np.array(route.highs)
        X = low + (X.astype(np.float64) + 1) * (high - low) / 2
    if not np.isfinite(X).all():
        raise RouteError("it has missing values")
    X, expected = canonical(X, entry.decimals), route.content or entry.content
    for parts in _arrangements(X, y, entry.rows, route.extra_parts):
        found = fingerprint(parts, entry.decimals)
        if found.content == expected:
            moved = route.content is None and found.ordered != entry.ordered
            remarks = [route.note, "rows in another order than the catalogue's" if moved else ""]
            return parts, ", ".join([route.title, *filter(None, remarks)]), found.content
    raise RouteError("its content is not that of the catalogue (checksum)")


def _arrangements(X: Array, y: Array, rows: tuple[int, ...], extra: tuple[int, ...]) -> Iterator[tuple[Part, ...]]:
    """The ways in which a file may be a sequence of the parts; the checksum shows which one it is."""
    sizes = rows + extra
    if sum(sizes) != len(y):
        raise RouteError(f"it has {len(y)} rows, the catalogue {sum(sizes)}")
    for order in permutations(range(len(sizes))):
        ends = dict(zip(order, accumulate(sizes[part] for part in order), strict=True))
        wanted = [slice(ends[part] - sizes[part], ends[part]) for part in range(len(rows))]
        yield tuple((X[part], y[part]) for part in wanted)
