"""What the ways to a data set have in common.

A route brings one table with all rows of a data set. It knows how its source writes the labels, and in which parts
the rows come; whether they are the right ones is for the checksum to say.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from mllkm_scale.data.catalogue.tables import Table

__all__ = ["Route", "RouteError"]

Array = NDArray[Any]


class RouteError(Exception):
    """A route does not lead to the data; the text says why in a few words."""


@dataclass(frozen=True, kw_only=True)
class Route(ABC):
    """A way to the rows of a data set.

    Attributes
    ----------
    labels : tuple of str
        How the source writes the classes, in the order of their codes.
    change : callable, optional
        Makes the features of the catalogue of those of the source.
    extra_parts : tuple of int
        Rows of parts that the source has beside those of the catalogue.
    content : str, optional
        Checksum of what this source holds, where its values are not exactly those of the catalogue.
    note : str
        How they differ, in a few words.
    """

    labels: tuple[str, ...]
    change: Callable[[Array], Array] | None = None
    extra_parts: tuple[int, ...] = ()
    content: str | None = None
    note: str = ""

    @property
    @abstractmethod
    def kind(self) -> str:
        """`openml` or `package`."""

    @property
    @abstractmethod
    def title(self) -> str:
        """How messages call it."""

    @abstractmethod
    def read(self) -> Table:
        """All rows; raises `RouteError` where they cannot be had."""
