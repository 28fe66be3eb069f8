"""Input by name: finds the columns of a table that are the features of a model.

Columns with names are matched by name, in any order, and other columns are left out. Columns without names are matched
by position.
"""

from __future__ import annotations

import difflib
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from numpy.typing import ArrayLike

from mllkm_scale.data.dataset import Dataset
from mllkm_scale.data.subset import picked_columns
from mllkm_scale.errors import DataError, ParameterError
from mllkm_scale.printable import printable

__all__ = [
    "Features",
    "MatchedColumns",
    "as_feature_names",
    "ignored_columns",
    "listed_names",
    "match_dataset",
    "unique_names",
    "warn_of_ignored",
]

LISTED = 10
_LONGEST_NAME = 1000


@dataclass(frozen=True)
class MatchedColumns:
    """Positions of the features of a model among the `n_columns` of a table, and the names of the columns left out.

    Examples
    --------
    >>> found = Features(2, ("width", "height")).match(["kind", "height", "width"], "new.csv")
    >>> found.positions, found.remark("new.csv")
    ((2, 1), "new.csv: 1 column is ignored, which is no feature of the model: 'kind'")
    """

    positions: tuple[int, ...]
    n_columns: int
    ignored: tuple[str, ...] = ()

    @property
    def in_place(self) -> bool:
        """Whether the columns of the table are the features of the model, in order."""
        return self.positions == tuple(range(self.n_columns))

    def remark(self, where: str) -> str | None:
        """A line that names the columns that are left out; None if there are none."""
        return ignored_columns(where, self.ignored) if self.ignored else None


@dataclass(frozen=True)
class Features:
    """The input of a model: the number of features, and their names, or None if there are only positions."""

    count: int
    names: tuple[str, ...] | None = None

    def match(self, found: Sequence[str] | None, where: str) -> MatchedColumns | None:
        """The positions of the features among columns with these names; None if either side has no names.

        Raises
        ------
        DataError
            If a feature is missing, or two columns have its name.
        """
        if self.names is None or found is None:
            return None
        places: dict[str, list[int]] = {}
        for position, name in enumerate(found):
            places.setdefault(name, []).append(position)
        missing = [name for name in self.names if name not in places]
        if missing:
            raise DataError(_missing(missing, self.names, list(places), where))
        twice = [name for name in self.names if len(places[name]) > 1]
        if twice:
            raise DataError(f"{where} has {len(places[twice[0]])} columns of the name {twice[0]!r}: rename all but one")
        wanted = set(self.names)
        positions = tuple(places[name][0] for name in self.names)
        return MatchedColumns(positions, len(found), tuple(name for name in places if name not in wanted))

    def of_table(self, X: ArrayLike) -> ArrayLike:
        """The columns of a data frame that are the features, in order; an array unchanged.

        Warns about columns that are left out.
        """
        arrow = hasattr(X, "column_names")
        columns = getattr(X, "column_names" if arrow else "columns", None)
        if self.names is None or columns is None:
            return X
        found = list(columns)
        names = [str(column) for column in found]
        if not all(isinstance(column, str) for column in found) and not set(self.names) <= set(names):
            return X  # numbers instead of names
        matched = self.match(names, "X")
        assert matched is not None
        warn_of_ignored(matched)
        if matched.in_place:
            return X
        taken = [found[at] for at in matched.positions]
        return X.select(taken) if arrow else X[taken]  # type: ignore[union-attr,index,call-overload]

    def of_row(self, x: Mapping[str, Any]) -> list[Any]:
        """The values of a row given by name, in order."""
        if self.names is None:
            raise DataError("x has names, but the model knows none: give its numbers in the order of the training")
        matched = self.match(list(x), "x")
        assert matched is not None
        warn_of_ignored(matched)
        return [x[name] for name in self.names]


def match_dataset(features: Features, dataset: Dataset) -> tuple[Dataset, MatchedColumns | None]:
    """The data set with the features of a model, in order, if both have names; nothing is read yet."""
    matched = features.match(dataset.feature_names, dataset.name)
    if matched is None or matched.in_place:
        return dataset, matched
    return picked_columns(dataset, matched.positions), matched


def as_feature_names(names: Any, n_features: int) -> tuple[str, ...] | None:
    """Checked names of features, one per feature; None for none."""
    if names is None:
        return None
    if isinstance(names, str) or not all(isinstance(name, str) for name in names):
        raise ParameterError("feature_names are no texts: give one for each feature")
    kept = tuple(str(name) for name in names)
    if len(kept) != n_features:
        raise ParameterError(f"{len(kept)} feature_names for {n_features} features: give one for each")
    if len(set(kept)) < len(kept):
        raise ParameterError("two features have one name: rename one, or give no names")
    return kept


def ignored_columns(where: str, ignored: Sequence[str]) -> str:
    """The line that names the columns that are left out."""
    if len(ignored) == 1:
        return f"{where}: 1 column is ignored, which is no feature of the model: {ignored[0]!r}"
    return f"{where}: {len(ignored)} columns are ignored, which are no features of the model: {listed_names(ignored)}"


def listed_names(names: Sequence[str]) -> str:
    """Names for a message; only the first ones of many."""
    shown = ", ".join(repr(name) for name in names[:LISTED])
    return shown + (f", ... ({len(names)})" if len(names) > LISTED else "")


def _missing(missing: Sequence[str], wanted: Sequence[str], found: Sequence[str], where: str) -> str:
    """The message about missing features, each with a column that may be meant."""
    known = set(wanted)
    spare = {name.strip().casefold(): name for name in found if name not in known}
    told = []
    for name in missing[:LISTED]:
        near = difflib.get_close_matches(name.strip().casefold(), list(spare), n=1)
        told.append(f"{name!r} (is it {spare.pop(near[0])!r}?)" if near else repr(name))
    more = ", ..." if len(missing) > LISTED else ""
    return (
        f"{where} lacks {len(missing)} of the {len(wanted)} features of the model: {', '.join(told)}{more}; name its"
        " columns as in the training, or have them taken by position"
    )


def warn_of_ignored(matched: MatchedColumns) -> None:
    """Warn about columns of X that are left out, if any."""
    remark = matched.remark("X")
    if remark is not None:
        warnings.warn(remark, UserWarning, stacklevel=5)


def unique_names(names: Sequence[str] | None) -> tuple[str, ...] | None:
    """Names for matching columns; None if two are equal, or one is not a short line of plain text.

    >>> unique_names(["a", "b"]), unique_names(["a", "a"]), unique_names(["a", "two\\nlines"])
    (('a', 'b'), None, None)
    """
    if names is None or len(set(names)) < len(names):
        return None
    kept = tuple(map(str, names))
    plain = all(len(name) <= _LONGEST_NAME and printable(name) == name for name in kept)
    return kept if plain else None
