"""Data sets of OpenML, by their number, through scikit-learn's `fetch_openml`.

A number names one version for good, and OpenML's own checksum of the file is verified on the way. Nominal features
come as positions in their list of names and are turned back into what the names say.
"""

from __future__ import annotations

import socket
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError, URLError

import numpy as np
from numpy.typing import NDArray

from mllkm_scale.data.catalogue.routes import Route, RouteError
from mllkm_scale.data.catalogue.tables import Table
from mllkm_scale.data.sources import one_line

__all__ = ["OpenML"]

Array = NDArray[Any]

SILENCE_S = 20.0


@dataclass(frozen=True, kw_only=True)
class OpenML(Route):
    """The data set with a number of OpenML's."""

    data_id: int

    @property
    def kind(self) -> str:
        """How `--route` calls it."""
        return "openml"

    @property
    def title(self) -> str:
        """How messages call it."""
        return f"OpenML {self.data_id}"

    def read(self) -> Table:
        """All rows, from OpenML's servers."""
        from sklearn.datasets import fetch_openml  # takes a second, and only this route needs it

        try:
            # With a folder the file is downloaded once, to be verified and then read; without one, twice.
            with _patience(), tempfile.TemporaryDirectory(prefix="mllkm-fetch-") as folder:
                bunch = fetch_openml(data_id=self.data_id, data_home=folder, as_frame=False, parser="liac-arff")
        except HTTPError as error:
            error.close()
            raise RouteError(f"the server answers {error.code}") from error
        except (URLError, TimeoutError, ConnectionError, HTTPException) as error:
            raise RouteError("it cannot be reached") from error
        except Exception as error:  # the parser has errors of its own, and no list of them is public
            raise RouteError(f"what it sends cannot be read ({one_line(error)[:120]})") from error
        return Table(_features(bunch), [_name(label) for label in np.asarray(bunch.target).ravel().tolist()])


def _features(bunch: Any) -> Array:
    """Numbers, or text where a nominal feature has names that are none; "?" stands for what is missing."""
    X = bunch.data.toarray() if hasattr(bunch.data, "toarray") else np.asarray(bunch.data)
    names = [bunch.categories.get(feature) for feature in bunch.feature_names]
    if all(known is None or all(_is_number(name) for name in known) for known in names):
        X = X.astype(np.float64)
        for column, known in enumerate(names):
            if known is not None:
                X[:, column] = np.array(known, dtype=np.float64)[_positions(X[:, column])]
        return X
    return np.column_stack(
        [
            X[:, column].astype(np.str_) if known is None else np.array([*known, "?"])[_positions(X[:, column])]
            for column, known in enumerate(names)
        ]
    )


def _positions(column: Array) -> Array:
    return np.where(np.isnan(column), -1, column).astype(np.int64)


def _is_number(name: Any) -> bool:
    try:
        float(name)
    except (TypeError, ValueError):
        return False
    return True


def _name(label: Any) -> str:
    """A label as text, with whole numbers as such: "1", never "1.0"."""
    return str(int(float(label))) if _is_number(label) and float(label).is_integer() else str(label)


@contextmanager
def _patience() -> Iterator[None]:
    """No retry is told, and no server is waited for without end: `fetch_openml` itself sets no limit."""
    previous = socket.getdefaulttimeout()
    socket.setdefaulttimeout(SILENCE_S)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        socket.setdefaulttimeout(previous)
