"""A machine of streamed locally linear kernels as a `Model`: folded coefficients, weights, and what was proved."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mllkm_scale.data import Preprocessor
from mllkm_scale.errors import ParameterError
from mllkm_scale.model import Model, ModelRecord
from mllkm_scale.online.streamed_kernels.lists import LocalKernels

if TYPE_CHECKING:
    from mllkm_scale.online.streamed_kernels.mkl import OnlineKernelMKL

__all__ = ["make_model"]


def make_model(mkl: OnlineKernelMKL) -> Model:
    """The model of the machine as it stands.

    Its record holds the last certificate; without one, or above `tol`, its status is "streaming", and the dual bound is
    the best that is known.
    """
    machine, stream = mkl.machine, mkl.stream
    used = machine.only(machine.weights > 0)
    if not isinstance(used.active, LocalKernels):
        raise ParameterError("a model file holds locally linear kernels: use decision_function for others")
    kernels, support = used.active.plain, stream.view.support
    coef, local_coef = kernels.coefficients(support.rows, support.signed_duals, used.weights)
    proved = mkl.certificate
    primal, dual = stream.view.primal, 0.0 if proved is None else proved.dual
    converged = proved is not None and proved.gap <= mkl.settings.tol
    record = ModelRecord(
        primal=primal,
        dual=dual,
        gap=(primal - dual) / primal if primal else 0.0,
        tol=mkl.settings.tol,
        status="converged" if converged else "streaming",
        n_open=stream.n_seen,
        n_train=mkl.data.n_rows,
        seed=mkl.settings.seed,
        params={"C": mkl.settings.C, "remember": stream.discarded.limit},
    )
    return Model(
        family=used.active.family,
        classes=mkl.classes,
        anchors=kernels.anchors,
        gammas=kernels.gammas,
        kernel_scale=kernels.scales,
        weights=used.weights,
        coef=coef,
        local_coef=local_coef,
        preprocessor=Preprocessor.fit(mkl.data.unlabelled(), "none"),
        certificate=record,
    )
