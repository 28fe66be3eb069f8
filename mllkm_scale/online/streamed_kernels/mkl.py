"""`OnlineKernelMKL`: MKL on known samples with a stream of kernels; see `stream` for the algorithm.

The machine becomes a `Model` with folded coefficients, weights, and a certificate.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from mllkm_scale.base.arrays import Array
from mllkm_scale.base.closing import Closing
from mllkm_scale.base.threads import Threads, n_threads, one_blas_thread
from mllkm_scale.data import Dataset, Preprocessor, check
from mllkm_scale.data.checks import require_finite
from mllkm_scale.data.labels import signs_of
from mllkm_scale.errors import DataError, ParameterError
from mllkm_scale.kernels.anchors import random_rows
from mllkm_scale.kernels.grid import KernelGrid
from mllkm_scale.kernels.normalisation import REFERENCE_ROWS
from mllkm_scale.mkl.families import KernelFamily
from mllkm_scale.mkl.state import Settings
from mllkm_scale.model import Model, ModelRecord
from mllkm_scale.online.streamed_kernels.arrivals import Arrivals
from mllkm_scale.online.streamed_kernels.bounds import StreamCertificate
from mllkm_scale.online.streamed_kernels.lists import LocalKernels
from mllkm_scale.online.streamed_kernels.probe import KernelProbe
from mllkm_scale.online.streamed_kernels.solver import MachineSolver, StreamedMachine
from mllkm_scale.online.streamed_kernels.stream import StreamedMKL
from mllkm_scale.params import resolve

if TYPE_CHECKING:
    from mllkm_scale.cluster import Client

__all__ = ["OnlineKernelMKL"]


class OnlineKernelMKL(Closing):
    """MKL on known samples with kernels that arrive one by one or in batches, from any iterator.

    Each kernel is probed with the gradient criterion. After an insertion, weights and duals are optimised again, with a
    warm start. `reprocess` probes the discarded kernels until the optimum over all kernels seen is certified.

    Parameters
    ----------
    X : array-like (n, d)
        Training samples in the space of the kernels; they are neither scaled nor projected here.
    y : array-like (n,)
        Labels of two or more classes; more than two classes share the weights.
    family : KernelGrid or KernelFamily, optional
        The kernels that ids in the stream refer to, such as a `GenericFamily`.
    C : float
        Weight of the hinge loss.
    tol : float
        Relative duality gap at which `reprocess` stops.
    remember : int, optional
        Largest number of discarded kernels to keep, those with the largest prices; all by default.
    normalize : {"trace", None}
        Whether to normalise arriving locally linear kernels to a mean diagonal of one; a kernel that is nonzero on
        almost no sample is then left out. Kernels of a family, and functions, are not normalised.
    memory_budget : str or int
        Memory for solving on working samples and active kernels.
    n_jobs : int
        Threads; -1 for one per core. The bits do not depend on it.
    client : distributed.Client, optional
        Its workers probe batches that are large enough. The bits do not depend on it.
    scratch_dir : path, optional
        Folder that the workers of the client can also read; the system's by default.
    random_state : int or None
        Seed of all random choices.

    Attributes
    ----------
    classes : array
        Labels in ascending order.
    certificate : StreamCertificate or None
        The certificate of the last `reprocess`; None if kernels have arrived since.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from mllkm_scale.kernels.grid import Family
    >>> X, y = load_iris(return_X_y=True)
    >>> gaussian = Family("gaussian", local_bias=1.0)
    >>> mkl = OnlineKernelMKL(X, y, tol=0.01)
    >>> for anchor in X[::3]:
    ...     _ = mkl.process(gaussian.kernels(np.array([anchor, anchor]), np.array([0.1, 1.0])))
    >>> mkl.reprocess().gap <= 0.01
    True
    >>> bool(np.mean(mkl.predict(X) == y) > 0.95)
    True
    """

    def __init__(
        self,
        X: ArrayLike,
        y: ArrayLike,
        *,
        family: KernelGrid | KernelFamily | None = None,
        C: float = 1.0,
        tol: float = 1e-3,
        remember: int | None = None,
        normalize: Literal["trace"] | None = "trace",
        memory_budget: str | int = "1GB",
        n_jobs: int = 1,
        client: Client | None = None,
        scratch_dir: str | Path | None = None,
        random_state: int | None = 0,
    ) -> None:
        if isinstance(C, str):
            raise ParameterError(f"C={C!r}: give a positive number")
        if remember is not None and (isinstance(remember, bool) or not isinstance(remember, int) or remember < 0):
            raise ParameterError(f"remember={remember!r}: give a whole number from 0, or None for all kernels")
        params = resolve(
            C=C, tol=tol, normalize=normalize, memory_budget=memory_budget, n_jobs=n_jobs, random_state=random_state
        )
        self.data = Dataset.from_arrays(X, y)
        check(self.data)
        self.classes, codes = self.data.label_codes()
        if isinstance(family, KernelGrid) and family.anchors.n_features != self.data.n_features:
            raise DataError(
                f"the grid has anchors of {family.anchors.n_features} features, but X has {self.data.n_features}:"
                " make the grid in the space of X"
            )
        seed = secrets.randbits(63) if random_state is None else int(random_state)
        self.settings = Settings(C=float(C), tol=float(tol), seed=seed)
        signs = signs_of(codes, len(self.classes))
        reference = None
        if normalize == "trace":
            rng = np.random.default_rng([seed, 3])
            reference = self.data.rows(random_rows(self.data.n_rows, REFERENCE_ROWS, rng))
        self.arrivals = Arrivals(self.data.n_features, family, reference)
        self._stack = ExitStack()
        threads = self._stack.enter_context(Threads(n_threads(n_jobs)))
        workers = None
        if client is not None:
            from mllkm_scale.cluster.executor import dask_executor

            folder = None if scratch_dir is None else Path(scratch_dir)
            workers = self._stack.enter_context(dask_executor(client, None, folder))
        solver = MachineSolver(self.data, signs, self.settings, params.budget_bytes, threads)
        self.stream = StreamedMKL(solver, KernelProbe(threads, workers), self.settings, remember)
        self.certificate: StreamCertificate | None = None

    def process(self, kernels: Any) -> int:
        """Probe arriving kernels, and insert those that violate; return the number of insertions.

        Parameters
        ----------
        kernels : LocallyLinearKernels, int or array of int, function or list of functions
            One kernel or a batch; ids are those of `family`, and a function k(X, Z) gives the Gram of any rows. All
            kernels of a stream are of one kind, and locally linear ones of one family. A kernel that is already active
            or remembered is skipped.
        """
        with one_blas_thread():
            self.certificate = None
            return self.stream.process(self.arrivals.admit(kernels))

    def reprocess(self) -> StreamCertificate:
        """Probe the discarded kernels, and insert violators, until the optimum is reached; return the certificate.

        It is the optimum over all kernels seen if none was forgotten, and otherwise over those that are remembered.
        """
        with one_blas_thread():
            _ = self.machine
            self.stream.reprocess()
            return self._certify()

    def learn(self, stream: Iterable[Any] | Callable[[], Iterable[Any]], passes: int = 1) -> StreamCertificate:
        """Process all kernels of a stream and reprocess, up to `passes` times while the gap is above `tol`.

        Parameters
        ----------
        stream : iterable or callable
            For several passes, something to iterate over again, such as a list, or a callable that returns an iterator.
            Each pass brings the same kernels, in any order.
        passes : int
            More than one pass helps if kernels are forgotten: a further pass proves the bound of the duals at its
            beginning, over its own kernels. If other kernels arrived before this call, the bound does not change.
        """
        if isinstance(passes, bool) or not isinstance(passes, int | np.integer) or passes < 1:
            raise ParameterError(f"passes={passes!r}: give a whole number from 1")
        if passes > 1 and not callable(stream) and iter(stream) is stream:
            raise ParameterError("stream is an iterator, good for one pass: give a list, or a callable that makes one")
        whole = self.stream.n_arrived == 0
        with one_blas_thread():
            n_kernels = self._pass(stream)
            certificate = self.reprocess()
            for number in range(2, passes + 1):
                if certificate.gap <= self.settings.tol:
                    break
                with self.stream.further_pass(whole):
                    if (again := self._pass(stream)) != n_kernels:
                        raise DataError(
                            f"pass {number} over the stream brought {again} kernels, and the first one {n_kernels}:"
                            " bring the same kernels in each"
                        )
                    self.stream.reprocess()
                certificate = self._certify()
        return certificate

    def _pass(self, stream: Iterable[Any] | Callable[[], Iterable[Any]]) -> int:
        """Process all kernels of a pass, and return their number."""
        before = self.stream.n_arrived
        for kernels in stream() if callable(stream) else stream:
            self.process(kernels)
        return self.stream.n_arrived - before

    def _certify(self) -> StreamCertificate:
        stream = self.stream
        self.certificate = StreamCertificate(
            primal=stream.view.primal,
            dual=stream.bound,
            n_seen=stream.n_seen,
            n_active=stream.n_active,
            n_remembered=len(stream.discarded),
            n_forgotten=stream.discarded.n_forgotten,
            likely_dual=stream.local_bound,
        )
        return self.certificate

    @property
    def n_active(self) -> int:
        """Number of kernels of the machine."""
        return self.stream.n_active

    def decision_function(self, X: ArrayLike) -> Array:
        """f of every row: (n,) for two classes, positive for the second, and (n, K) otherwise."""
        rows = Dataset.from_arrays(X)
        if rows.n_features != self.data.n_features:
            raise DataError(
                f"X has {rows.n_features} features per row, but the training samples {self.data.n_features}:"
                " give the same features in the same order"
            )
        for start, chunk in rows.chunks():
            require_finite(chunk, start, "X", "predict")
        with one_blas_thread():
            f = self.stream.solver.decide(self.machine, rows, self.stream.view.support)
        return f[:, 0] if f.shape[1] == 1 else f

    def predict(self, X: ArrayLike) -> Array:
        """The label of every row, shape (n,)."""
        f = self.decision_function(X)
        codes = (f > 0).astype(np.int64) if f.ndim == 1 else f.argmax(axis=1)
        labels: Array = self.classes[codes]
        return labels

    def model(self) -> Model:
        """The machine as a model that can be saved; only for locally linear kernels."""
        return make_model(self)

    @property
    def machine(self) -> StreamedMachine:
        """Active kernels with their weights, duals and working samples."""
        if self.stream.machine is None:
            raise ParameterError("no kernel is active yet: process kernels that separate the classes")
        return self.stream.machine

    def close(self) -> None:
        """Release the threads and the folder shared with workers."""
        self._stack.close()


def make_model(mkl: OnlineKernelMKL) -> Model:
    """The model of the current machine.

    Its record holds the last certificate; without one, or above `tol`, its status is "streaming", and the dual bound is
    the best known one.
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
