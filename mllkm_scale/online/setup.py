"""The setup that the first samples determine: the preparation of rows, the candidate kernels, and C."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from mllkm_scale.base.arrays import Array
from mllkm_scale.data import Dataset, Preprocessor
from mllkm_scale.data.preparation.scaling import QUANTILE_SCALINGS, most_columns
from mllkm_scale.data.tables.columns import Columns
from mllkm_scale.data.tables.encoding import Encoding, FoldTables
from mllkm_scale.data.tables.translation import Translation
from mllkm_scale.errors import DataError
from mllkm_scale.kernels.anchors import random_rows
from mllkm_scale.kernels.automatic import local_bias_of, weight_of_loss
from mllkm_scale.kernels.gammas import n_gammas, resolve_gammas
from mllkm_scale.kernels.grid import Family
from mllkm_scale.kernels.maps import check_map
from mllkm_scale.online.params import OnlineParams
from mllkm_scale.online.plan import USUAL_KERNELS, OnlineSizes
from mllkm_scale.params import Params

__all__ = ["Setup", "codes_of", "sizes_of_stream"]

_LISTED = 12
_SAMPLE_ROWS = 1000  # for distances


@dataclass(frozen=True)
class Setup:
    """Classes in ascending order, and the values determined by the first samples."""

    classes: Array
    preprocessor: Preprocessor
    family: Family
    gammas: Array
    C: float
    encoding: Encoding | None = None
    translation: Translation | None = None

    @classmethod
    def of(cls, like: Dataset, classes: Array, params: Params) -> Setup:
        """The setup from these samples, which are like the future ones; samples of a table are encoded."""
        preprocessor = Preprocessor.fit(like, _scaling(params), params.n_components, params.whiten)
        seed = int(params.random_state or 0)
        rows = like.rows(random_rows(like.n_rows, _SAMPLE_ROWS, np.random.default_rng([seed, 1])))
        rows = preprocessor.transform(rows, np.float64)[np.random.default_rng([seed, 2]).permutation(len(rows))]
        family = Family(check_map(params.map), params.componentwise, local_bias_of(params.local_bias, rows))
        gammas = resolve_gammas(params.gammas, family, rows)
        return cls(classes, preprocessor, family, gammas, weight_of_loss(params.C, rows.shape[1]))

    @property
    def n_features_in(self) -> int:
        """Number of features of an arriving row, or of columns of the table."""
        return self.preprocessor.n_features_in if self.encoding is None else self.encoding.n_columns

    def of_table(self, encoding: Encoding, columns: Columns) -> Setup:
        """The setup for a table, whose rows arrive with codes of these columns."""
        translation = encoding.translation(columns, len(columns), "the stream")
        return replace(self, encoding=encoding, translation=translation)

    def prepare(self, X: Array, folds: FoldTables | None = None) -> Array:
        """Prepared rows; `folds` are for the rows on which the encoding was fitted."""
        if self.encoding is not None and self.translation is not None:
            X = self.encoding.apply(self.translation.apply(X, 0, "the stream"), folds)
        return self.preprocessor.transform(X, np.float64)


def _scaling(params: Params) -> str:
    """The scaling to fit: 'auto' is 'standard', because quantiles of the first samples say little about later ones."""
    return "standard" if params.scaling == "auto" else params.scaling


def codes_of(labels: Array, classes: Array, first: int) -> Array:
    """Positions of labels among the classes; `first` is the position in the stream of the first of them.

    >>> codes_of(np.array(["b", "a"]), np.array(["a", "b"]), 0).tolist()
    [1, 0]
    """
    comparable = (labels.dtype.kind == "U") == (classes.dtype.kind == "U")
    at = np.minimum(np.searchsorted(classes, labels), len(classes) - 1) if comparable else np.zeros(len(labels), int)
    unknown = np.flatnonzero(classes[at] != labels) if comparable else np.arange(len(labels))
    if len(unknown):
        listed = ", ".join([repr(value) for value in classes[:_LISTED].tolist()] + ["..."] * (len(classes) > _LISTED))
        raise DataError(
            f"sample {first + int(unknown[0])} (0-based) of the stream has the label {labels[unknown[0]].item()!r},"
            f" none of the classes {listed}: check it, or give all possible labels as classes"
        )
    return at.astype(np.int64)


def sizes_of_stream(n_features_in: int, n_classes: int, params: Params, online: OnlineParams) -> OnlineSizes:
    """The arguments of the plan."""
    components = params.n_components
    counted = components is not None and not isinstance(components, float | np.floating)
    n_columns = most_columns(_scaling(params), n_features_in)
    return OnlineSizes(
        n_features_in=n_features_in,
        # A share of variance may keep all of them.
        n_features=int(components) if counted else n_columns,  # type: ignore[arg-type]
        n_classes=n_classes,
        n_gammas=n_gammas(params.gammas),
        warm_up=online.warm_up,
        componentwise=params.componentwise,
        map=check_map(params.map),
        max_kernels=params.max_kernels or USUAL_KERNELS,
        max_samples=online.max_samples,
        projected=components is not None,
        n_columns=n_columns,
        sketched=_scaling(params) in QUANTILE_SCALINGS,
    )
