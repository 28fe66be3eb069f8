"""The most important features: those with the largest effect on the machine of a short descent.

The importance of a feature is its spread times the norm of its column in the linear map that is learned, whose rows are
directions in the space of the features, or of their principal components if there are many features.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from mllkm_scale.base.arrays import Array
from mllkm_scale.base.threads import Threads
from mllkm_scale.data.dataset import Dataset
from mllkm_scale.data.preparation.preprocessing import Preprocessor
from mllkm_scale.kernels.anchors import random_rows
from mllkm_scale.kernels.grid import Family
from mllkm_scale.learn.proposals import learn_kernels
from mllkm_scale.learn.settings import learn_settings
from mllkm_scale.learn.start import folded

__all__ = ["COMPONENTS", "MANY_FEATURES", "importance_of", "most_important"]

MANY_FEATURES, COMPONENTS = 64, 50
"""With more features than this, directions are learned in the space of the principal components."""

_ROWS, _KERNELS, _DIRECTIONS = 6000, 40, 8


def importance_of(dataset: Dataset, signs: Array, codes: Array, scaling: str, seed: int, threads: Threads) -> Array:
    """The importance of every feature (d,), computed on a sample of the rows.

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(200, 3))
    >>> codes = (X[:, 1] > 0).astype(int)
    >>> signs = 2.0 * codes[:, None] - 1
    >>> importance = importance_of(Dataset.from_arrays(X), signs, codes, "standard", 0, Threads())
    >>> most_important(importance, 1).tolist()
    [1]
    """
    numbers = random_rows(dataset.n_rows, _ROWS, np.random.default_rng([seed, 17]))
    rows = Dataset.from_arrays(dataset.rows(numbers))
    components = COMPONENTS if rows.n_features > MANY_FEATURES else None
    preprocessor = Preprocessor.fit(rows, scaling, components)
    data = Dataset.from_arrays(preprocessor.transform(rows.part(0, rows.n_rows)))
    settings = learn_settings(
        data.n_rows,
        min(_KERNELS, max(1, data.n_rows // 2)),
        min(_DIRECTIONS, data.n_features),
        seed,
        signs.shape[1],
        bumps="wide",
    )
    settings = replace(settings, epochs=max(1, settings.epochs // 2))
    learned = learn_kernels(data, signs[numbers], codes[numbers], Family("squared"), settings, threads, hold_out=False)
    projection = folded(preprocessor, learned).projection
    assert projection is not None
    columns = preprocessor.scaling.apply(rows.part(0, rows.n_rows))
    importance = np.linalg.norm(projection.matrix, axis=0) * columns.std(axis=0)
    features = np.zeros(dataset.n_features)
    made_of = [preprocessor.scaling.feature(column) for column in range(preprocessor.n_columns)]
    np.maximum.at(features, made_of, importance)
    return features


def most_important(importance: Array, count: int) -> Array:
    """The indices of the most important features, in ascending order.

    >>> most_important(np.array([0.5, 0.0, 2.0]), 2).tolist()
    [0, 2]
    """
    return np.sort(np.argsort(-importance, kind="stable")[:count])
