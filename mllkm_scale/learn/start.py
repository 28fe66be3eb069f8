"""The learned machine as the start of MKL, and its record in run.json.

Its metric becomes part of the preparation, its kernels become candidates, and SequentialMKL starts from its predictors.
A local predictor of kernel m with the scale s_m (unit trace) and the local bias b has, in the space of the kernel, the
squared norm |w_m|^2 = (|coef_m|^2 + local_coef_m^2 / b) / s_m; This gives P = 1/2 (sum |w_m|)^2 + C sum hinge (F5), and
the weights beta_m = |w_m| / sum |w_m|, which minimise sum_m |w_m|^2 / beta_m.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from mllkm_scale.base.arrays import Array
from mllkm_scale.base.events import Epoch
from mllkm_scale.data.preparation.preprocessing import Preprocessor
from mllkm_scale.errors import ParameterError
from mllkm_scale.kernels.grid import Family
from mllkm_scale.kernels.locally_linear import LocallyLinearKernels
from mllkm_scale.kernels.normalisation import list_scales
from mllkm_scale.learn.machine import Metric
from mllkm_scale.learn.proposals import Learned

__all__ = ["LearnedRecord", "LearnedStart", "folded", "record_of", "start_of"]

_QUANTILES = (0.125, 0.375, 0.625, 0.875)


@dataclass(frozen=True)
class LearnedStart:
    """The learned machine in the space of the kernels: candidates, and their local predictors."""

    kernels: LocallyLinearKernels
    coef: Array  # (K, s, d)
    local_coef: Array  # (K, s)
    held: Array  # numbers of the rows that were held out
    held_error: float | None
    epochs: tuple[Epoch, ...]

    def spread_gammas(self) -> Array:
        """Scales for a grid: quantiles of the learned scales."""
        return np.unique(np.exp(np.quantile(np.log(self.kernels.gammas), _QUANTILES)))

    def norms(self, outputs: slice | Array = slice(None)) -> Array:
        """|w_m| over some columns of the outputs, (s,)."""
        coef, local_coef, b = self.coef[outputs], self.local_coef[outputs], self.kernels.local_bias
        squares = np.einsum("ksd,ksd->s", coef, coef)
        if b > 0:
            squares += np.einsum("ks,ks->s", local_coef, local_coef) / b
        elif local_coef.any():
            raise ParameterError("local_bias=0: a learned machine has local biases: give a positive one, or 'auto'")
        return np.sqrt(squares / self.kernels.scales)

    def decide(self, X: Array) -> Array:
        """f (rows, K)."""
        return self.kernels.decide(X, self.coef, self.local_coef)


def folded(preprocessor: Preprocessor, learned: Learned) -> Preprocessor:
    """The preparation with the learned metric; features that the metric drops are no longer read."""
    metric = learned.machine.metric
    if metric is None:
        return preprocessor
    if metric.ndim == 2:
        return preprocessor.mapped(metric)
    return preprocessor.scaled(np.exp(metric), learned.kept_features)


def start_of(learned: Learned, family: Family, reference: Array | None) -> LearnedStart:
    """Kernels and predictors of the learned machine in the space that `folded` prepares.

    `reference` are the rows for unit trace, or None for unnormalised kernels. Kernels that are zero on all samples are
    left out.
    """
    machine = learned.machine
    anchors, gammas = machine.mapped_anchors, np.exp(machine.log_gammas.astype(np.float64))
    coef, local_coef = machine.local_predictors()
    if machine.metric is not None and machine.metric.ndim == 1:
        keep = learned.kept_features
        anchors, coef = np.ascontiguousarray(anchors[:, keep]), np.ascontiguousarray(coef[:, :, keep])
    scales = np.ones(len(gammas)) if reference is None else list_scales(family, anchors, gammas, reference)
    used = scales > 0
    if not used.any():
        raise ParameterError("no learned kernel reaches a sample: check that the samples differ, or use anchors='all'")
    kernels = family.kernels(anchors[used], gammas[used], scales[used])
    return LearnedStart(kernels, coef[:, used], local_coef[:, used], learned.held, learned.held_error, learned.epochs)


@dataclass(frozen=True)
class LearnedRecord:
    """A summary of what was learned.

    Attributes
    ----------
    n_kernels : int
        Number of learned kernels.
    metric : str, int or None
        The kind of the learned metric.
    importance : tuple of float
        For each prepared column, with six digits: its spread in the metric, divided by the largest.
    features : tuple of int, or None
        The feature that each column is made of; None if columns are principal components.
    quantile : tuple of bool
        Whether each column is a quantile column.
    dropped_columns, dropped_features : int
        Columns that the metric drops, and features without any remaining column.
    """

    n_kernels: int
    metric: Metric
    importance: tuple[float, ...]
    features: tuple[int, ...] | None
    quantile: tuple[bool, ...]
    dropped_columns: int
    dropped_features: int

    def as_dict(self, n_kept: int | None, n_beside: int | None) -> dict[str, Any]:
        """Plain data, for JSON, with the learned kernels and the others that the model has."""
        return asdict(self) | {"kept_kernels": n_kept, "other_kernels": n_beside}


def record_of(learned: Learned, preprocessor: Preprocessor) -> LearnedRecord:
    """The record of what was learned on rows prepared by `preprocessor`, which does not yet have the metric."""
    layout, scaling = learned.machine.layout, preprocessor.scaling
    kept = (
        learned.kept_features if layout.metric is not None and not layout.linear else np.ones(layout.n_features, bool)
    )
    features, quantile, lost = None, np.zeros(layout.n_features, dtype=bool), 0
    if preprocessor.projection is None:
        features = np.array([scaling.feature(column) for column in range(layout.n_features)])
        quantile, lost = scaling.mapped, len(np.unique(features)) - len(np.unique(features[kept]))
    return LearnedRecord(
        n_kernels=layout.n_kernels,
        metric=layout.metric,
        importance=tuple(float(f"{value:.6g}") for value in learned.importance),
        features=None if features is None else tuple(features.tolist()),
        quantile=tuple(quantile.tolist()),
        dropped_columns=int(np.count_nonzero(~kept)),
        dropped_features=lost,
    )
