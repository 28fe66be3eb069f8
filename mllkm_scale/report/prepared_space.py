"""The model in the prepared space, after scaling and projection, where its anchors are."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mllkm_scale.data.preparation.preprocessing import Preprocessor
from mllkm_scale.data.preparation.scaling import Scaling
from mllkm_scale.model.model import Model

__all__ = ["axis_name", "codes_at", "heaviest", "in_prepared_space", "plain", "unprepared"]


def unprepared(n_features: int) -> Preprocessor:
    """A preparation that does not change rows."""
    return Preprocessor(Scaling("none", np.zeros(n_features), np.ones(n_features)))


def in_prepared_space(model: Model) -> Model:
    """The same machine for rows that are already scaled and projected."""
    parts = {spec.name: getattr(model, spec.name) for spec in fields(model)}
    return Model(
        **(parts | {"preprocessor": unprepared(model.anchors.shape[1]), "feature_names": None, "profile": None})
    )


def codes_at(model: Model, rows: NDArray[Any]) -> NDArray[np.int64]:
    """Position among the classes of the prediction, for rows that are already scaled and projected."""
    if not model.preprocessor.invertible:
        return model.codes(in_prepared_space(model).decision_function(rows))
    return model.codes(model.decision_function(model.preprocessor.invert(rows)))  # this uses existing tables


def heaviest(model: Model, most: int) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
    """Indices of the kernels with the largest weights, and their shares of the total weight."""
    weights = np.atleast_2d(model.weights).sum(axis=0)
    chosen = np.argsort(-weights, kind="stable")[:most]
    return chosen, weights[chosen] / (weights.sum() or 1.0)


def axis_name(model: Model, names: tuple[str, ...] | None, feature: int) -> str:
    """The name of a prepared feature: its name in the data, or that of a component."""
    scaling, projection = model.preprocessor.scaling, model.preprocessor.projection
    if projection is not None:
        return f"{'principal component' if projection.orthonormal else 'direction'} {feature + 1}"
    number = scaling.feature(feature)
    quantile = " (quantile)" if scaling.mapped[feature] else ""
    if names is not None and len(names) == model.n_features_in and names[number].strip():
        return plain(names[number], 32) + quantile
    return f"feature {number}{quantile}"


def plain(value: Any, most: int) -> str:
    """A text of the user for a picture: on one line, shortened, printable, and with escaped dollars, which begin
    formulas.

    >>> plain("one\\ntwo", 20), plain("$x$", 20), plain("a long name", 7)
    ('one two', '\\\\$x\\\\$', 'a long…')
    """
    text = "".join(sign if sign.isprintable() else "?" for sign in " ".join(str(value).split()))
    short = text if len(text) <= most else text[: most - 1] + "…"
    return short.replace("$", r"\$")
