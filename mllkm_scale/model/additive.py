"""A component-wise machine compiled to tables: a row then costs the same however many kernels there are (F4).

    f_k(z) = sum_l f_kl(z_l)        f_kl(t): one lookup in the cells of feature l, one polynomial a class

The tables are off by at most a stated deviation, for any row. They are made when a model first predicts, are bounded
in bytes, and are never stored. Where they cannot be made, or do not pay, the direct form is used.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from mllkm_scale.errors import ParameterError
from mllkm_scale.model.additive_cells import DEGREES, Cells, NotTabulated, make_cells
from mllkm_scale.model.additive_lookup import add_tables
from mllkm_scale.model.additive_shapes import Shapes, require_componentwise, rounding
from mllkm_scale.model.blocks import BlockPlan
from mllkm_scale.team import one_blas_thread
from mllkm_scale.units import format_bytes

if TYPE_CHECKING:
    from mllkm_scale.model.model import Model

__all__ = ["DEVIATION", "MAX_BYTES", "MIN_KERNELS", "AdditiveModel", "Form", "additive_form", "compile_additive"]

Array = NDArray[Any]

DEVIATION = 1e-6  # the margin is 1
MAX_BYTES = 64_000_000
MIN_KERNELS = 16  # with fewer the direct form is as fast, and needs no tables
ROWS = 256


@dataclass(frozen=True, eq=False)
class AdditiveModel:
    """The tables of a component-wise model; see `compile_additive`.

    Attributes
    ----------
    deviation : float
        Bound on |f_k(z) - its value by tables| over all k and all z.
    starts : int64 array (d + 1,)
        The cells of feature l are starts[l] to starts[l + 1].
    edges : array (cells,)
        Where each cell begins; the first of a feature at minus infinity.
    records : array (cells, 2 + (degree + 1) K)
        Origin and factor of the variable, and the polynomials of all classes.
    """

    map: str
    deviation: float
    starts: NDArray[np.int64]
    edges: Array
    records: Array
    n_machines: int

    @property
    def n_features(self) -> int:
        """d, the tables."""
        return len(self.starts) - 1

    @property
    def cells(self) -> int:
        """Cells of all tables."""
        return len(self.edges)

    @property
    def bytes(self) -> int:
        """Memory of all tables."""
        return self.starts.nbytes + self.edges.nbytes + self.records.nbytes

    @property
    def degree(self) -> int:
        """Of the polynomials."""
        return (self.records.shape[1] - 2) // self.n_machines - 1

    def decide(self, Z: Array) -> Array:
        """f of prepared rows Z (n, d), shape (n, K); the bits of a row depend on that row alone."""
        F = np.zeros((len(Z), self.n_machines))
        add_tables(np.ascontiguousarray(Z, dtype=np.float64), self.starts, self.edges, self.records, F)
        return F

    def blocks(self, n_features_in: int, n_kernels: int) -> BlockPlan:
        """In which blocks rows are evaluated."""
        row_bytes = 8 * (3 * n_features_in + self.n_features + self.n_machines)
        return BlockPlan(ROWS, n_kernels, ROWS * row_bytes)


def compile_additive(model: Model, deviation: float = DEVIATION, *, max_bytes: int = MAX_BYTES) -> AdditiveModel:
    """Compile a component-wise model to tables.

    The deviation is proved cell by cell from bounds on derivatives, with an allowance for rounding, and holds on the
    whole axis: anchors, kinks and values far outside of the data included.

    Parameters
    ----------
    model : Model
        Of component-wise kernels.
    deviation : float
        How far the tables may be off in any f; half of it is the most that rounding may take.
    max_bytes : int
        Bound on the tables.

    Raises
    ------
    NotTabulated
        If it cannot be done within the deviation and the bytes.

    Examples
    --------
    >>> from mllkm_scale import MLLKMClassifier
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> model = MLLKMClassifier(componentwise=True).fit(X, y).model_
    >>> tables = compile_additive(model)
    >>> tables.n_features, tables.deviation <= 1e-6, tables.bytes < 1_000_000
    (4, True, True)
    >>> difference = tables.decide(model.preprocessor.transform(X)) - model.direct().decision_function(X)
    >>> bool(abs(difference).max() <= 1e-6)
    True
    """
    require_componentwise(model)
    if not 0 < deviation < np.inf:
        raise ParameterError(f"deviation={deviation}: give a positive number, such as {DEVIATION}")
    n_machines, d = model.n_machines, model.anchors.shape[1]
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        rounded = float(rounding(model).sum())
    if not rounded <= deviation / 2:
        raise NotTabulated(
            f"rounding alone may move values by {rounded:.2g}, as some gammas are too small or coefficients too large"
            f" for tables within {deviation:.2g}: allow a larger deviation, or use the direct form"
        )
    tolerance = (deviation - rounded) / d
    cell_bytes = 8 * (3 + (DEGREES[model.family.map] + 1) * n_machines)
    max_cells = (max_bytes - 8 * (d + 1)) // cell_bytes
    tables: list[tuple[Array, Array]] = []
    error = rounded
    with one_blas_thread():
        for feature in range(d):
            left = max_cells - sum(len(edges) for edges, _ in tables) - 2
            try:
                cells = make_cells(Shapes.of(model, feature), tolerance, left)
            except NotTabulated as why:
                raise NotTabulated(
                    f"tables within {format_bytes(max_bytes)} and {deviation:.2g} are not possible, as feature {feature}"
                    f" {why}: allow more bytes or a larger deviation, or use the direct form"
                ) from why
            tables.append(_packed(cells))
            error += cells.error
    counts = [len(edges) for edges, _ in tables]
    return AdditiveModel(
        map=model.family.map,
        deviation=error,
        starts=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        edges=np.concatenate([edges for edges, _ in tables]),
        records=np.concatenate([records for _, records in tables]),
        n_machines=n_machines,
    )


def _packed(cells: Cells) -> tuple[Array, Array]:
    """Edges and records of one table; a cell of zeros at either end."""
    n, powers, n_machines = cells.coefficients.shape
    edges = np.concatenate([[-np.inf], cells.edges]) if n else np.array([-np.inf])
    records = np.zeros((len(edges), 2 + powers * n_machines))
    records[1 : n + 1, 0] = 0.5 * (cells.edges[1:] + cells.edges[:-1])
    records[1 : n + 1, 1] = 2.0 / np.diff(cells.edges)
    records[1 : n + 1, 2:] = cells.coefficients.reshape(n, -1)
    return edges, records


@dataclass(frozen=True)
class Form:
    """How a model evaluates rows: by tables, or directly if there are none; `reason` says why directly."""

    tables: AdditiveModel | None
    reason: str = ""


@dataclass
class _Slot:
    lock: threading.Lock = field(default_factory=threading.Lock)
    form: Form | None = None


_slots: WeakKeyDictionary[Model, _Slot] = WeakKeyDictionary()
_slots_lock = threading.Lock()


def additive_form(model: Model) -> Form:
    """The form of a component-wise model, found out once: the tables live as long as the model, beside it.

    One thread makes them, and others that ask meanwhile wait for it.
    """
    with _slots_lock:
        slot = _slots.setdefault(model, _Slot())
    with slot.lock:
        if slot.form is None:
            slot.form = _find_form(model)
        return slot.form


def _find_form(model: Model) -> Form:
    if model.n_kernels < MIN_KERNELS:
        return Form(None, f"tables pay from {MIN_KERNELS} kernels on")
    try:
        return Form(compile_additive(model))
    except NotTabulated as why:
        return Form(None, str(why))
