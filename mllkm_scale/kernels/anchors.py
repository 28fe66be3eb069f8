"""The sources of anchors: all training samples (the paper), some of them, k-means centres, or an array.

Anchors can also be learned (F12), alone or together with all samples.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mllkm_scale.base.arrays import Array
from mllkm_scale.base.files.npy import map_npy
from mllkm_scale.errors import ParameterError
from mllkm_scale.kernels.distances import squared_distances
from mllkm_scale.kernels.grid import RowSource

__all__ = ["AnchorSpec", "anchor_spec", "kmeans_centres", "random_rows", "read_anchors"]


ANCHOR_FORMS = "'auto', 'learned', 'learned:N', 'learned+all', 'learned+N', 'all', a number, 'kmeans:N' or an array"
_LEARNED = re.compile(r"learned(?::0*([1-9]\d*))?(?:\+(all|0*[1-9]\d*))?")
_KMEANS = re.compile(r"kmeans:0*([1-9]\d*)")


@dataclass(frozen=True)
class AnchorSpec:
    """The parsed parameter `anchors`: "auto", "all", "random", "kmeans", "learned" or "given", and a count.

    Samples may be candidates as well as the learned kernels: as many random ones as `beside`, or all ("all").
    """

    kind: str
    count: int | None = None
    beside: int | str = 0

    @property
    def learned(self) -> bool:
        return self.kind == "learned"

    def n_anchors(self, n_rows: int, n_learned: int) -> int:
        """Number of anchors of the grid, for these numbers of rows and learned kernels."""
        if self.kind == "all" or self.beside == "all":
            return n_rows
        if isinstance(self.beside, int) and self.beside:
            return min(self.beside, n_rows)
        if self.learned or (self.kind == "auto" and n_learned):
            return n_learned
        return min(self.count or n_rows, n_rows)


def anchor_spec(anchors: Any) -> AnchorSpec:
    """Parse the parameter, or raise a ParameterError.

    >>> anchor_spec("learned:200+all"), anchor_spec(500)
    (AnchorSpec(kind='learned', count=200, beside='all'), AnchorSpec(kind='random', count=500, beside=0))
    """
    if isinstance(anchors, str):
        if anchors in ("all", "auto"):
            return AnchorSpec(anchors)
        if found := _KMEANS.fullmatch(anchors):
            return AnchorSpec("kmeans", int(found[1]))
        if found := _LEARNED.fullmatch(anchors):
            beside = "all" if found[2] == "all" else int(found[2] or 0)
            return AnchorSpec("learned", None if found[1] is None else int(found[1]), beside)
        raise ParameterError(f"anchors={anchors!r}: give {ANCHOR_FORMS}")
    if isinstance(anchors, int | np.integer) and not isinstance(anchors, bool):
        if anchors < 1:
            raise ParameterError(f"anchors={anchors!r}: at least one anchor is needed")
        return AnchorSpec("random", int(anchors))
    return AnchorSpec("given", len(np.atleast_2d(np.asarray(anchors))))


def read_anchors(text: str) -> str | int | Array:
    """The parameter for a text: a form of `anchor_spec`, or the rows of an .npy file.

    >>> read_anchors("learned+all"), read_anchors("500"), read_anchors("kmeans:200")
    ('learned+all', 500, 'kmeans:200')
    """
    if text.endswith(".npy"):
        return _rows_of(Path(text))
    value = int(text) if text.isdecimal() else text.lower()
    try:
        anchor_spec(value)
    except ParameterError:
        raise ParameterError(
            f"{text!r} is none of: auto, learned, learned:200, learned+all, learned+1000, all, 500, kmeans:200,"
            " anchors.npy"
        ) from None
    return value


def _rows_of(path: Path) -> Array:
    try:
        rows = map_npy(path, ParameterError)
    except FileNotFoundError:
        raise ParameterError(f"{path} does not exist: check the path") from None
    except OSError as error:
        raise ParameterError(f"{path} cannot be read ({error.strerror or error}): check the path") from None
    if rows.ndim != 2 or rows.dtype.kind not in "fiu" or 0 in rows.shape:
        raise ParameterError(f"{path} has shape {rows.shape} and type {rows.dtype}: give one row of numbers an anchor")
    return np.array(rows)


def random_rows(n_rows: int, count: int, rng: np.random.Generator) -> Array:
    """`count` distinct row numbers in ascending order, or all of them if there are fewer."""
    if count < 1:
        raise ParameterError(f"anchors={count}: at least one anchor is needed")
    return np.sort(rng.choice(n_rows, min(count, n_rows), replace=False))


def kmeans_centres(source: RowSource, count: int, rng: np.random.Generator, *, passes: int = 20) -> Array:
    """Lloyd's k-means in passes over the chunks, starting from distinct random rows.

    A centre that loses all its rows does not move.
    """
    centres = source.rows(random_rows(source.n_rows, count, rng)).astype(np.float64)
    for _ in range(passes):
        sums, counts = np.zeros_like(centres), np.zeros(len(centres))
        for _, chunk in source.chunks():
            nearest = squared_distances(chunk.astype(np.float64), centres).argmin(axis=1)
            np.add.at(sums, nearest, chunk)
            counts += np.bincount(nearest, minlength=len(centres))
        moved = np.where(counts[:, None] > 0, sums / np.maximum(counts, 1)[:, None], centres)
        if np.array_equal(moved, centres):
            break
        centres = moved
    return centres
