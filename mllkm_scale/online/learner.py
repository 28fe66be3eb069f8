"""Online learning from raw rows and labels as they arrive; a model is available at any time.

    warm up   the first samples wait; then they determine scaling, projection, gammas and C, and the machine starts
    learn     samples wait until they form a block, and are learned together
    model     the current model: a copy learns the waiting samples and is finished; the state does not change

So the state is a function of the samples in order. It does not depend on how they are divided into calls, or on how
often the model is requested.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from mllkm_scale.base.arrays import Array
from mllkm_scale.base.executor import Executor, ThreadExecutor
from mllkm_scale.base.threads import n_threads, one_blas_thread
from mllkm_scale.data import Dataset
from mllkm_scale.data.labels import as_label_vector, check_labels, encode_labels
from mllkm_scale.data.tables.columns import Columns
from mllkm_scale.data.tables.fitting import fit_encoding, require_numbers
from mllkm_scale.data.weights import class_weights
from mllkm_scale.errors import DataError, ParameterError
from mllkm_scale.model.model import Model
from mllkm_scale.model.names import Features, match_dataset
from mllkm_scale.online.machine import BLOCK, OnlineMachine, OnlineSettings
from mllkm_scale.online.model import model_of
from mllkm_scale.online.params import OnlineParams, require_online
from mllkm_scale.online.plan import OnlinePlan, plan_online
from mllkm_scale.online.prequential import Prequential
from mllkm_scale.online.probing import Probing
from mllkm_scale.online.setup import Setup, codes_of, sizes_of_stream
from mllkm_scale.online.sources.samples import require_known
from mllkm_scale.params import Params

__all__ = ["OnlineLearner", "Pending"]

_SILENT = 1e-3  # |f| of every class: all kernels are almost zero on the sample


@dataclass
class Pending:
    """Waiting samples: raw rows (n, d), labels or codes (n,), ids (n,), whether they are new (n,), and weights (n,)."""

    X: Array = field(default_factory=lambda: np.empty((0, 0)))
    y: Array = field(default_factory=lambda: np.empty(0))
    ids: Array = field(default_factory=lambda: np.empty(0, np.int64))
    new: Array = field(default_factory=lambda: np.empty(0, bool))
    weights: Array = field(default_factory=lambda: np.empty(0))

    def __len__(self) -> int:
        return len(self.ids)

    def append(self, X: Array, y: Array, ids: Array, new: bool, weights: Array) -> None:
        """Add samples; the first ones determine the number of features."""
        if len(X) != len(y):
            raise DataError(f"there are {len(X)} rows and {len(y)} labels: give one label per row")
        if self.X.shape[1] and X.shape[1] != self.X.shape[1]:
            raise DataError(
                f"these rows have {X.shape[1]} features, those before had {self.X.shape[1]}: give the same features in"
                " the same order"
            )
        first = not self.X.shape[1]
        self.X, self.y = (
            (X.copy(), np.array(y)) if first else (np.concatenate([self.X, X]), np.concatenate([self.y, y]))
        )
        self.ids = np.concatenate([self.ids, ids])
        self.new = np.concatenate([self.new, np.full(len(X), new)])
        self.weights = np.concatenate([self.weights, weights])

    def take(self, n: int) -> Pending:
        """Remove and return the first n samples."""
        first = Pending(self.X[:n], self.y[:n], self.ids[:n], self.new[:n], self.weights[:n])
        self.X, self.y, self.ids, self.new = self.X[n:], self.y[n:], self.ids[n:], self.new[n:]
        self.weights = self.weights[n:]
        return first


class OnlineLearner:
    """Learns samples as they arrive, within a memory budget.

    Parameters
    ----------
    params : Params
        The parameters named in `mllkm_scale.online.params.SHARED` are used.
    online : OnlineParams
    classes : array-like, optional
        All possible labels; by default those of the warm-up.
    like : Dataset, optional
        Samples like the future ones, which determine scaling, projection, gammas and C; by default the first samples of
        the stream.
    held_bytes : int
        Memory that the program holds otherwise, within the budget.
    executor : Executor, optional
        Dask workers for large probes; others run in a thread, concurrently with the steps.
    listen : callable, optional
        Called with the learner itself after each block.

    Examples
    --------
    >>> from mllkm_scale.params import resolve
    >>> from sklearn.datasets import load_digits
    >>> X, y = load_digits(return_X_y=True)
    >>> learner = OnlineLearner(resolve(n_jobs=1), OnlineParams(warm_up=512), classes=range(10))
    >>> for start in range(0, len(X), 100):
    ...     learner.learn(X[start : start + 100], y[start : start + 100])
    >>> learner.prequential.error < 0.1, learner.n_seen, learner.model().n_kernels <= 500
    (True, 1797, True)
    """

    def __init__(
        self,
        params: Params,
        online: OnlineParams,
        classes: ArrayLike | None = None,
        *,
        like: Dataset | None = None,
        held_bytes: int = 0,
        executor: Executor | None = None,
        listen: Callable[[OnlineLearner], None] | None = None,
    ) -> None:
        self.params, self.online = require_online(params), online.check()
        self.classes = None if classes is None else _given(classes)
        self.like, self.held_bytes, self.executor, self.listen = like, held_bytes, executor or ThreadExecutor(), listen
        self.pending = Pending()
        self.prequential = Prequential()
        self.started: tuple[Setup, OnlineMachine] | None = None  # set after the warm-up
        self.feature_names: tuple[str, ...] | None = None  # of the samples, for the model
        self.columns: Columns | None = None  # of a table, whose levels give the codes of its rows
        self._pool: ThreadPoolExecutor | None = None

    @property
    def n_seen(self) -> int:
        """Number of samples that have arrived; those of a second pass count again."""
        return len(self.pending) + (0 if self.started is None else self.started[1].n_seen)

    def learn(
        self,
        X: Array,
        y: ArrayLike,
        ids: Array | None = None,
        *,
        new: bool = True,
        sample_weight: ArrayLike | None = None,
    ) -> None:
        """Learn samples (n, d) with their labels, and their weights in the loss.

        Samples that arrive again, and are not `new`, have the same `ids` as before; they are learned, but do not count
        for the prequential error.
        """
        require_known(X, self.n_seen, "the stream", self.columns)
        labels = as_label_vector(np.asarray(y), "y")
        if self.classes is not None:
            labels = codes_of(labels, self.classes, self.n_seen)
        weights = np.ones(len(X))
        if sample_weight is not None and len(X):
            weights = _checked_weights(X, sample_weight)
        numbers = np.arange(self.n_seen, self.n_seen + len(X)) if ids is None else ids
        self.pending.append(X, labels, numbers, new, weights)
        with one_blas_thread():
            if self.started is None and len(self.pending) >= self.online.warm_up:
                self.start()
            while self.started is not None and len(self.pending) >= BLOCK:
                self.learn_block(*self.started)

    def take_columns(self, columns: Columns | None, name: str) -> None:
        """Set the columns of a table; levels may be added later, and nothing else may change."""
        known = self.columns
        if self.n_seen and not _extends(columns, known):
            raise DataError(
                f"{name} has other columns or levels than what was learned so far: give the same stream, from its"
                " beginning"
            )
        self.columns = columns
        if columns is not None and columns != known and self.started is not None:
            setup, machine = self.started
            assert setup.encoding is not None
            self.started = setup.of_table(setup.encoding, columns), machine

    def start(self) -> None:
        """End the warm-up."""
        waiting, n = self.pending, self.online.warm_up
        if self.classes is None:
            classes, _ = _found(waiting.y[:n])
            waiting.y, self.classes = codes_of(waiting.y, classes, 0), classes
        setup, rows = self.setup_from(waiting.X[:n], waiting.y[:n], self.classes)
        machine = self.machine_for(setup, self.beside())
        weights = self.weights_of(waiting.weights[:n], waiting.y[:n], setup.classes)
        machine.start(rows, waiting.y[:n], waiting.ids[:n], weights)
        if not machine.inserted:
            raise ParameterError(
                f"no kernel with gammas={self.params.gammas!r} is nonzero on more than a few of the first {n}"
                " samples: use other gammas, or check that the samples differ"
            )
        waiting.take(n)
        self.started = setup, machine
        self.tell()

    def learn_block(self, setup: Setup, machine: OnlineMachine) -> None:
        """Test and learn the block of samples that have waited longest."""
        block = self.pending.take(BLOCK)
        weights = self.weights_of(block.weights, block.y, setup.classes)
        outputs = machine.learn(setup.prepare(block.X), block.y, block.ids, weights)
        predicted = outputs[:, 0] > 0 if outputs.shape[1] == 1 else outputs.argmax(axis=1)
        if block.new.any():
            wrong, silent = predicted != block.y, np.abs(outputs).max(axis=1) < _SILENT
            self.prequential.add(*(int(of[block.new].sum()) for of in (block.new, wrong, silent)))
            self.prequential.keep(outputs[block.new], block.y[block.new].astype(np.int64))
        self.tell()

    def finished(self) -> tuple[Setup, OnlineMachine]:
        """A machine that has also learned the waiting samples, and is ready for use; the state does not change."""
        waiting = self.pending
        if not self.n_seen:
            raise DataError("no sample has arrived yet: learn some samples before you ask for the model")
        with one_blas_thread():
            if self.started is None:
                classes, codes = (self.classes, waiting.y) if self.classes is not None else _found(waiting.y)
                setup, rows = self.setup_from(waiting.X, codes, classes)
                machine = self.machine_for(setup, None)
                weights = self.weights_of(waiting.weights, codes, classes)
                machine.start(rows, codes, waiting.ids, weights)
                return setup, machine
            setup, machine = self.started[0], self.started[1].copy()
            if len(waiting):
                weights = self.weights_of(waiting.weights, waiting.y, setup.classes)
                machine.process(setup.prepare(waiting.X), waiting.y, waiting.ids, weights)
            machine.finish()
            return setup, machine

    def weights_of(self, weights: Array, codes: Array, classes: Array) -> Array:
        """The weights of samples, times those of their classes."""
        given = self.params.class_weight
        return weights if given is None else weights * class_weights(classes, given, "the stream")[codes]

    def model(self) -> Model:
        """The current machine as a model; the state does not change."""
        setup, machine = self.finished()
        return self.model_of(setup, machine)

    def model_of(self, setup: Setup, machine: OnlineMachine) -> Model:
        """The model of a finished machine, with the names of the features and a calibration."""
        calibration = self.prequential.calibration()
        return model_of(setup, machine.active, self.params, self.n_seen, self.feature_names, calibration)

    def setup_from(self, X: Array, codes: Array, classes: Array) -> tuple[Setup, Array]:
        """The fixed setup, from `like` or from these first samples, and these samples as prepared rows.

        The encoding of a table is fitted on the first samples, whose labels are known.
        """
        first = Dataset.from_arrays(X, classes[codes], name="the first samples").with_columns(self.columns)
        like = first if self.like is None else self.like
        like, _ = match_dataset(Features(X.shape[1], self.feature_names), like)
        if like.n_features != X.shape[1]:
            raise DataError(
                f"{like.name} has {like.n_features} features, but the samples of the stream have {X.shape[1]}: give"
                " samples like those of the stream"
            )
        if self.columns is None:
            require_numbers(like, "prepared from")
            setup = Setup.of(like, classes, self.params)
            return setup, setup.prepare(X)
        encoding, folds = fit_encoding(first, seed=int(self.params.random_state or 0), open_ended=True)
        encoded = encoding.dataset(like, folds if like is first else None)
        setup = Setup.of(encoded, classes, self.params).of_table(encoding, self.columns)
        return setup, setup.prepare(X, folds)

    def plan(self, n_features_in: int, n_classes: int) -> OnlinePlan:
        """The memory plan; a BudgetError if there is not enough."""
        sizes = sizes_of_stream(n_features_in, n_classes, self.params, self.online)
        return plan_online(sizes, self.params.budget_bytes, self.held_bytes)

    def machine_for(self, setup: Setup, beside: ThreadPoolExecutor | None) -> OnlineMachine:
        """A new machine."""
        plan = self.plan(setup.preprocessor.n_features_in, len(setup.classes))
        settings = OnlineSettings(
            C=setup.C,
            max_kernels=plan.max_kernels,
            max_samples=plan.max_samples,
            window=self.online.window,
            seed=int(self.params.random_state or 0),
        )
        n_features, normalize = setup.preprocessor.n_features_out, self.params.normalize == "trace"
        probing = Probing(setup.family, setup.gammas, n_features, normalize, self.executor, beside)
        return OnlineMachine(probing, len(setup.classes), settings)

    def beside(self) -> ThreadPoolExecutor | None:
        """The thread for probes that run concurrently with the steps, if allowed."""
        if self._pool is None and n_threads(self.params.n_jobs) > 1:
            self._pool = ThreadPoolExecutor(1, thread_name_prefix="mllkm-probe")
        return self._pool

    def work_with(self, executor: Executor) -> None:
        """Use this executor for probes from now on, after waiting for the current probe."""
        self.executor = executor
        if self.started is not None:
            machine = self.started[1]
            machine.probe.result()
            machine.probing = replace(machine.probing, executor=executor, beside=self.beside())

    def __getstate__(self) -> dict[str, Any]:
        """The state without objects of this process."""
        return {name: value for name, value in vars(self).items() if name not in ("executor", "listen", "_pool")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, listen=None, _pool=None)
        self.work_with(ThreadExecutor())

    def tell(self) -> None:
        if self.listen is not None:
            self.listen(self)

    def close(self) -> None:
        """End concurrent work, after waiting for its result, so that learning can continue later."""
        with self._pool or nullcontext():
            self._pool = None
            if self.started is not None:
                machine = self.started[1]
                machine.probing = replace(machine.probing, beside=None)
                machine.probe.result()


def _extends(columns: Columns | None, known: Columns | None) -> bool:
    """Whether rows coded with the known columns have the same codes with these."""
    if columns is None or known is None:
        return columns is known
    return len(columns) == len(known) and all(
        new.kind == old.kind and new.levels[: len(old.levels)] == old.levels
        for new, old in zip(columns.columns, known.columns, strict=True)
    )


def _checked_weights(X: Array, sample_weight: ArrayLike) -> Array:
    """The weights of samples, which may all be zero."""
    weights = Dataset.from_arrays(X, sample_weight=sample_weight).weights(some=False)
    assert weights is not None
    return weights


def _given(classes: ArrayLike) -> Array:
    found, _ = encode_labels(classes)
    if len(found) < 2:
        raise DataError(f"classes={found.tolist()!r}: give all possible labels, at least two")
    return found


def _found(labels: Array) -> tuple[Array, Array]:
    """Classes and codes of labels, if no classes were given."""
    classes, codes = encode_labels(labels)
    if len(classes) < 2:
        raise DataError(
            f"all {len(labels)} samples so far have the label {classes[0].item()!r}: give all possible labels as"
            " classes"
        )
    check_labels(labels, "the stream's label")
    return classes, codes
