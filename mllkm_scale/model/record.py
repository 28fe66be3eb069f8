"""The record of the training of a model: the certificate (F5), and the parameters."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mllkm_scale.base.version import __version__
from mllkm_scale.errors import ParameterError

__all__ = ["ModelRecord"]


@dataclass(frozen=True)
class ModelRecord:
    """The certified duality gap of a training run, over all `n_open` candidate kernels, and facts about the run.

    Attributes
    ----------
    primal, dual, gap : float
        Upper and lower bound on the optimum, and (primal - dual) / primal.
    tol : float
        The requested gap.
    status : str
        The rule by which training ended, such as ``"converged"``.
    n_open, n_train : int
        Candidate kernels that the certificate covers, and training samples.
    seed : int or None
    package_version : str
        Version of the package that trained the model.
    params : mapping
        Parameters of the training, as JSON values: NumPy values become plain ones, and tuples become lists.

    Examples
    --------
    >>> record = ModelRecord(2.0, 1.99, 0.005, 0.01, "converged", 900, 300, 0, params={"gammas": (0.1, 1.0)})
    >>> record.params
    {'gammas': [0.1, 1.0]}
    """

    primal: float
    dual: float
    gap: float
    tol: float
    status: str
    n_open: int
    n_train: int
    seed: int | None
    package_version: str = __version__
    params: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        try:
            for name in ("primal", "dual", "gap", "tol"):
                object.__setattr__(self, name, float(getattr(self, name)))
            for name in ("n_open", "n_train"):
                object.__setattr__(self, name, int(getattr(self, name)))
            object.__setattr__(self, "seed", None if self.seed is None else int(self.seed))
            params = json.loads(json.dumps(dict(self.params), default=_plain))
        except (TypeError, ValueError) as error:
            raise ParameterError(f"the record of a model holds {error}: give plain values") from error
        object.__setattr__(self, "params", params)

    def to_header(self) -> dict[str, Any]:
        """The record as plain data, for JSON."""
        return dict(vars(self))


def _plain(value: object) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    raise TypeError(f"a {type(value).__name__}, which JSON cannot hold")
