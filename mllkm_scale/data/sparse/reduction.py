"""Reduces rows of many columns to few features, as the first step of the preparation, without making them dense.

    random   z = R' x: each column of x goes to 4 features, with sign +-1/2 each (sparse Johnson-Lindenstrauss); the
             column and the seed tell which, so that nothing is stored
    svd      z = V' x: V are the right singular vectors of the training rows for the largest singular values, by
             subspace iteration on X'X from a random start (Halko, Martinsson and Tropp 2011), three passes in all

Products with CSR blocks add up the entries of a row in the order of its columns: a row has the same bits in any block,
sparse or dense.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, sparse

from mllkm_scale.base.threads import one_blas_thread
from mllkm_scale.base.units import format_bytes
from mllkm_scale.data.dataset import Dataset
from mllkm_scale.data.grid import MOST_DENSE
from mllkm_scale.data.preparation.prepared import stored_rows
from mllkm_scale.data.sparse.rows import BLOCK_ENTRIES, sparse_blocks
from mllkm_scale.errors import BudgetError, DataError, ModelFileError, ParameterError

__all__ = ["REDUCTION_ARRAYS", "Reduction", "ReductionSpec", "fit_reduction", "reduced", "reduction_spec"]

RANDOM, SVD = "random", "svd"
REDUCTION_ARRAYS = ("reduction_kind", "reduction_shape", "reduction_seed", "reduction_components")

SVD_FEATURES, RANDOM_FEATURES = 100, 256  # by default
OVERSAMPLING = 10
ITERATIONS = 2
SIGNS = 4  # number of features to which each column is mapped
MOST_KEPT = BLOCK_ENTRIES  # most columns for which the random map is kept; beyond, it is computed per block


@dataclass(frozen=True)
class ReductionSpec:
    """The parsed parameter: "auto", "none", "svd" or "random", and the number of features, or None."""

    kind: str
    count: int | None = None


def reduction_spec(given: str | None) -> ReductionSpec:
    """Parse the parameter `reduction`.

    >>> reduction_spec("svd:50"), reduction_spec("auto").count
    (ReductionSpec(kind='svd', count=50), None)
    """
    kind, colon, count = ("none" if given is None else str(given)).partition(":")
    known = kind in ("auto", "none", SVD, RANDOM) and (not colon or (kind in (SVD, RANDOM) and count.isdecimal()))
    if not known or (colon and int(count) < 1):
        raise ParameterError(f"reduction={given!r}: give 'auto', 'none', 'svd', 'svd:100', 'random' or 'random:256'")
    return ReductionSpec(kind, int(count) if colon else None)


@dataclass(frozen=True, eq=False)
class Reduction:
    """A fitted map from d columns to p features.

    Attributes
    ----------
    kind : str
        "random" or "svd".
    n_columns, n_features : int
        d and p.
    seed : int
        Seed of the random map.
    components : float64 array (d, p), optional
        V, for "svd".

    Examples
    --------
    >>> reduction = Reduction("random", 1000, 8, seed=0)
    >>> X = sparse.csr_array(([2.0, 1.0], ([0, 1], [7, 999])), shape=(2, 1000))
    >>> Z = reduction.apply(X)
    >>> Z.shape, np.square(Z).sum(axis=1).tolist(), np.array_equal(Z, reduction.apply(X.toarray()))
    ((2, 8), [4.0, 1.0], True)
    """

    kind: str
    n_columns: int
    n_features: int
    seed: int = 0
    components: NDArray[np.float64] | None = None

    @cached_property
    def _matrix(self) -> Any:
        """The matrix (d, p) by which a row is multiplied, if it is kept."""
        if self.components is not None:
            return self.components
        return _random_map(np.arange(self.n_columns), self.n_features, self.seed)

    @property
    def size_bytes(self) -> int:
        """Memory of the kept matrix."""
        if self.kind == SVD:
            return 8 * self.n_columns * self.n_features
        return 0 if self._by_block else self.n_columns * (12 * min(SIGNS, self.n_features) + 8)

    @property
    def buffer_bytes(self) -> int:
        """Temporary memory for a block of rows."""
        return _random_bytes(self.n_columns, self.n_features) if self._by_block else 0

    @property
    def _by_block(self) -> bool:
        return self.kind == RANDOM and self.n_columns > MOST_KEPT

    @property
    def feature_names(self) -> tuple[str, ...]:
        """The names of the features."""
        return tuple(f"{self.kind} {j}" for j in range(self.n_features))

    def apply(self, X: Any) -> NDArray[np.float64]:
        """Rows of features (n, p) from sparse or dense rows (n, d)."""
        if X.ndim != 2 or X.shape[1] != self.n_columns:
            raise DataError(f"X has shape {X.shape}: the model was trained with {self.n_columns} features per row")
        rows = sparse.csr_array(X, dtype=np.float64)
        if self._by_block:
            columns, places = np.unique(rows.indices, return_inverse=True)
            rows = sparse.csr_array((rows.data, places, rows.indptr), shape=(X.shape[0], max(1, len(columns))))
            matrix = _random_map(columns if len(columns) else np.zeros(1), self.n_features, self.seed)
        else:
            matrix = self._matrix
        product: Any = rows @ matrix
        return np.ascontiguousarray(product.toarray() if self.components is None else product)

    def dataset(self, dataset: Dataset) -> Dataset:
        """The rows of a data set as features; nothing is read yet."""
        if dataset.n_features != self.n_columns:
            raise DataError(
                f"{dataset.name} has {dataset.n_features} features per row, but the model was trained with"
                f" {self.n_columns}: give the same features in the same order"
            )
        source = ReducedSource(dataset.source, self)
        reduced = Dataset(source, dataset.label_source, weights=dataset.weight_source, path=dataset.path)
        return reduced.with_names(self.feature_names)

    def describe(self) -> str:
        """A description on one line."""
        how = "singular vectors" if self.kind == SVD else "random signs"
        return f"{self.n_columns:,} columns are {self.n_features} features, by {how}"

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """The reduction as plain arrays, for a model file."""
        arrays: dict[str, NDArray[Any]] = {
            "reduction_kind": np.array(self.kind),
            "reduction_shape": np.array([self.n_columns, self.n_features]),
            "reduction_seed": np.array(self.seed),
        }
        return arrays if self.components is None else arrays | {"reduction_components": self.components}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Reduction:
        """The reduction that `to_arrays` was called on, bit for bit; inconsistent arrays are refused."""
        kind, shape, seed = (np.asarray(arrays.get(name, np.empty(0))) for name in REDUCTION_ARRAYS[:3])
        components = arrays.get("reduction_components")
        fits = (
            kind.shape == ()
            and kind.dtype.kind == "U"
            and kind.item() in (RANDOM, SVD)
            and shape.shape == (2,)
            and shape.dtype.kind in "iu"
            and 0 < int(shape[1]) <= 2**20
            and 0 < int(shape[0]) < 2**31
            and seed.shape == ()
            and seed.dtype.kind in "iu"
            and int(seed) >= 0
            and (components is None) == (kind.item() == RANDOM)
        )
        if fits and components is not None:
            fits = components.shape == tuple(shape) and components.dtype.kind == "f"
            fits = fits and bool(np.isfinite(components).all())
        if not fits:
            raise ModelFileError("the model has a reduction that does not fit together: copy or train it again")
        own = None if components is None else np.ascontiguousarray(components, dtype=np.float64)
        return cls(kind.item(), int(shape[0]), int(shape[1]), int(seed), own)


class ReducedSource:
    """Rows of features, computed while reading."""

    def __init__(self, source: Any, reduction: Reduction) -> None:
        self.name = source.name
        self.shape: tuple[int, ...] = (source.shape[0], reduction.n_features)
        self.dtype = np.dtype(np.float64)
        self.buffer_bytes = source.buffer_bytes + reduction.size_bytes + reduction.buffer_bytes
        self._source, self._reduction = source, reduction

    def read(self, start: int, stop: int) -> NDArray[np.float64]:
        """Rows `start` to `stop` as features."""
        if hasattr(self._source, "read_sparse"):
            return self._reduction.apply(self._source.read_sparse(start, stop))
        return self._reduction.apply(self._source.read(start, stop))

    def close(self) -> None:
        """Close the source of the rows."""
        self._source.close()


def fit_reduction(
    dataset: Dataset, spec: ReductionSpec, *, seed: int = 0, budget_bytes: int | None = None
) -> Reduction | None:
    """The reduction of a data set, or None if it is not reduced.

    "auto" reduces sparse rows of more than `MOST_DENSE` columns: by singular vectors if they fit, otherwise by random
    signs.

    Examples
    --------
    >>> X = sparse.random_array((60, 5000), density=0.01, rng=np.random.default_rng(0), format="csr")
    >>> fit_reduction(Dataset.from_arrays(X), reduction_spec("svd:7")).describe()
    '5,000 columns are 7 features, by singular vectors'
    """
    n, d = dataset.n_rows, dataset.n_features
    kind, count = spec.kind, spec.count
    if kind == "none" or (kind == "auto" and (not dataset.is_sparse or d <= MOST_DENSE)):
        return None
    if kind == "auto":
        fits = budget_bytes is None or _fitting_bytes(SVD, d, SVD_FEATURES) <= budget_bytes
        kind = SVD if fits else RANDOM
    p = min(count or (SVD_FEATURES if kind == SVD else RANDOM_FEATURES), d)
    needed = _fitting_bytes(kind, d, p)
    if budget_bytes is not None and needed > budget_bytes:
        remedy = "raise memory_budget, or give fewer features" + (", or reduction='random'" if kind == SVD else "")
        raise BudgetError(
            f"reduction='{kind}:{p}' of {dataset.name} needs {format_bytes(needed)} for {d:,} columns, of a budget of"
            f" which {format_bytes(budget_bytes)} are left for it: {remedy}"
        )
    if kind == RANDOM:
        return Reduction(RANDOM, d, p, seed)
    components = _singular_vectors(dataset, min(p, n), seed)
    return Reduction(SVD, d, components.shape[1], seed, components)


def reduced(dataset: Dataset, reduction: Reduction, *, in_memory: bool, scratch_dir: Path | None = None) -> Dataset:
    """The rows of a data set as features, made once: an array, or a file that is removed when the result is closed."""
    rows = ((start, reduction.apply(block)) for start, block in sparse_blocks(dataset.source))
    shape = (dataset.n_rows, reduction.n_features)
    made = stored_rows(rows, shape, np.dtype(np.float64), dataset, in_memory=in_memory, scratch_dir=scratch_dir)
    made = made.with_names(reduction.feature_names)
    made.held_bytes = reduction.size_bytes + (8 * shape[0] * shape[1] if in_memory else 0)
    return made


def _singular_vectors(dataset: Dataset, p: int, seed: int) -> NDArray[np.float64]:
    """V (d, p), or fewer columns if the rank is lower; the entry of largest absolute value is positive in each."""
    d = dataset.n_features
    size = min(p + OVERSAMPLING, d, dataset.n_rows)
    with one_blas_thread():
        basis: NDArray[Any] = np.random.default_rng([seed, 11]).normal(size=(d, size))
        for _ in range(ITERATIONS):
            image = np.zeros((d, size))
            for _, rows in sparse_blocks(dataset.source):
                image += rows.T @ (rows @ basis)
            basis = linalg.qr(image, mode="economic", overwrite_a=True, check_finite=False)[0]
            del image
        gram = np.zeros((size, size))
        for _, rows in sparse_blocks(dataset.source):
            product = rows @ basis
            gram += product.T @ product
        squares, vectors = np.linalg.eigh(gram)
        order = np.argsort(-squares, kind="stable")[:p]
        rank = int(np.count_nonzero(squares[order] > squares.max() * 1e-12))
        if not rank:
            raise DataError(f"{dataset.name} has zeros alone: there is nothing to reduce")
        found = np.ascontiguousarray(basis @ vectors[:, order[:rank]])
    peaks = found[np.argmax(np.abs(found), axis=0), np.arange(rank)]
    found *= np.where(peaks < 0, -1.0, 1.0)
    return found


def _random_map(columns: NDArray[Any], p: int, seed: int) -> sparse.csr_array:
    """Rows of R, (columns, p): each has `SIGNS` nonzero entries, one in each of as many ranges of the features."""
    d, signs = len(columns), min(SIGNS, p)
    bounds = np.arange(signs + 1) * p // signs
    with np.errstate(over="ignore"):  # splitmix64 of the position of each entry
        entries = columns.astype(np.uint64)[:, None] * np.uint64(signs) + np.arange(signs, dtype=np.uint64)
        z: NDArray[Any] = entries.ravel() + np.uint64(seed) * np.uint64(0xD1342543DE82EF95)
        z = (z + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z ^= z >> np.uint64(31)
    z = z.reshape(d, signs)
    places = bounds[:-1] + ((z >> np.uint64(1)) % np.diff(bounds).astype(np.uint64)).astype(np.int64)
    values = np.where(z & np.uint64(1), 1.0, -1.0) / np.sqrt(signs)
    starts = np.arange(d + 1) * signs
    return sparse.csr_array((values.ravel(), places.ravel().astype(np.int32), starts), shape=(d, p))


def _fitting_bytes(kind: str, d: int, p: int) -> int:
    """Bytes of the basis, its image, the contribution of a block, and the work space of their factors; hashes of the
    random map."""
    return 4 * 8 * d * (p + OVERSAMPLING) if kind == SVD else _random_bytes(d, p)


def _random_bytes(d: int, p: int) -> int:
    """Bytes of the hashes of the columns of a block, and of the indices of these columns."""
    return 48 * min(d, MOST_KEPT) * min(SIGNS, p) + (32 * BLOCK_ENTRIES if d > MOST_KEPT else 0)
