"""Learning online from samples as they come: raw rows and labels in, a model at any moment.

    warm up   the first samples wait; then scaling, projection, gammas and C are taken from them, and the machine starts
    learn     samples wait until a block of them is there, and are learned together
    model     the model as it would be now: a copy learns the samples that wait, and is finished; nothing changes

So the state is a function of the samples in their order, however they are cut into calls, and however often the
model is asked for.
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

_SILENT = 1e-3  # |f| of every class: no kernel reaches the sample


@dataclass
class Pending:
    """Rows (n, d) as they came, their labels or codes (n,), ids (n,), and which came for the first time (n,)."""

    X: Array = field(default_factory=lambda: np.empty((0, 0)))
    y: Array = field(default_factory=lambda: np.empty(0))
    ids: Array = field(default_factory=lambda: np.empty(0, np.int64))
    new: Array = field(default_factory=lambda: np.empty(0, bool))

    def __len__(self) -> int:
        return len(self.ids)

    def append(self, X: Array, y: Array, ids: Array, new: bool) -> None:
        """More samples come; the first ones say how many features there are."""
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

    def take(self, n: int) -> Pending:
        """The first n, which wait no longer."""
        first = Pending(self.X[:n], self.y[:n], self.ids[:n], self.new[:n])
        self.X, self.y, self.ids, self.new = self.X[n:], self.y[n:], self.ids[n:], self.new[n:]
        return first


class OnlineLearner:
    """Learns samples as they come, within a memory budget.

    Parameters
    ----------
    params : Params
        Those named in `mllkm_scale.online.params.SHARED` count.
    online : OnlineParams
    classes : array-like, optional
        All labels that can come; without, those of the warm-up are all.
    like : Dataset, optional
        Samples like those that will come, from which scaling, projection, gammas and C are taken; by default they are
        the first that come.
    held_bytes : int
        Memory that the program holds beside it, within the budget.
    executor : Executor, optional
        Dask workers for probes that are worth it; others are done by a thread beside the steps.
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
        self.started: tuple[Setup, OnlineMachine] | None = None  # once the warm-up is over
        self.feature_names: tuple[str, ...] | None = None  # of the samples, as the model will know them
        self.columns: Columns | None = None  # of a table, by whose levels its rows are coded
        self._pool: ThreadPoolExecutor | None = None

    @property
    def n_seen(self) -> int:
        """Samples that have come; those of a second pass count again."""
        return len(self.pending) + (0 if self.started is None else self.started[1].n_seen)

    def learn(self, X: Array, y: ArrayLike, ids: Array | None = None, *, new: bool = True) -> None:
        """Samples (n, d) with their labels.

        Those that come again, and are not `new`, have the `ids` that they had before; they are learned, but do not
        count for the prequential error.
        """
        require_known(X, self.n_seen, "the stream", self.columns)
        labels = as_label_vector(np.asarray(y), "y")
        if self.classes is not None:
            labels = codes_of(labels, self.classes, self.n_seen)
        self.pending.append(X, labels, np.arange(self.n_seen, self.n_seen + len(X)) if ids is None else ids, new)
        with one_blas_thread():
            if self.started is None and len(self.pending) >= self.online.warm_up:
                self.start()
            while self.started is not None and len(self.pending) >= BLOCK:
                self.learn_block(*self.started)

    def take_columns(self, columns: Columns | None, name: str) -> None:
        """What the samples of a table hold; levels may be added as they come, and nothing else may change."""
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
        """The warm-up is over."""
        waiting, n = self.pending, self.online.warm_up
        if self.classes is None:
            classes, _ = _found(waiting.y[:n])
            waiting.y, self.classes = codes_of(waiting.y, classes, 0), classes
        setup, rows = self.setup_from(waiting.X[:n], waiting.y[:n], self.classes)
        machine = self.machine_for(setup, self.beside())
        machine.start(rows, waiting.y[:n], waiting.ids[:n])
        if not machine.inserted:
            raise ParameterError(
                f"no kernel with gammas={self.params.gammas!r} tells more than a few of the first {n} samples"
                " from its anchor: use other gammas, or check that the samples differ"
            )
        waiting.take(n)
        self.started = setup, machine
        self.tell()

    def learn_block(self, setup: Setup, machine: OnlineMachine) -> None:
        """Test and learn the samples that have waited longest."""
        block = self.pending.take(BLOCK)
        outputs = machine.learn(setup.prepare(block.X), block.y, block.ids)
        predicted = outputs[:, 0] > 0 if outputs.shape[1] == 1 else outputs.argmax(axis=1)
        if block.new.any():
            wrong, silent = predicted != block.y, np.abs(outputs).max(axis=1) < _SILENT
            self.prequential.add(*(int(of[block.new].sum()) for of in (block.new, wrong, silent)))
            self.prequential.keep(outputs[block.new], block.y[block.new].astype(np.int64))
        self.tell()

    def finished(self) -> tuple[Setup, OnlineMachine]:
        """A machine that has learned the samples that wait, too, and is ready to be used; the state does not change."""
        waiting = self.pending
        if not self.n_seen:
            raise DataError("no sample has come yet: learn some before the model is asked for")
        with one_blas_thread():
            if self.started is None:
                classes, codes = (self.classes, waiting.y) if self.classes is not None else _found(waiting.y)
                setup, rows = self.setup_from(waiting.X, codes, classes)
                machine = self.machine_for(setup, None)
                machine.start(rows, codes, waiting.ids)
                return setup, machine
            setup, machine = self.started[0], self.started[1].copy()
            if len(waiting):
                machine.process(setup.prepare(waiting.X), waiting.y, waiting.ids)
            machine.finish()
            return setup, machine

    def model(self) -> Model:
        """The machine as it is now, ready to predict and to be saved; the state does not change."""
        setup, machine = self.finished()
        return self.model_of(setup, machine)

    def model_of(self, setup: Setup, machine: OnlineMachine) -> Model:
        """The model of a machine that is finished, with what the learner knows of names and scores."""
        calibration = self.prequential.calibration()
        return model_of(setup, machine.active, self.params, self.n_seen, self.feature_names, calibration)

    def setup_from(self, X: Array, codes: Array, classes: Array) -> tuple[Setup, Array]:
        """What is fixed for good, from the data given for it or from these first samples, and these as prepared rows.

        The encoding of a table is fitted on the first samples, whose labels are known.
        """
        first = Dataset.from_arrays(X, classes[codes], name="the first samples").with_columns(self.columns)
        like = first if self.like is None else self.like
        like, _ = match_dataset(Features(X.shape[1], self.feature_names), like)
        if like.n_features != X.shape[1]:
            raise DataError(
                f"{like.name} has {like.n_features} features, but the samples that come have {X.shape[1]}: give samples"
                " like those that will come"
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
        """Where the memory goes; a BudgetError if there is not enough."""
        sizes = sizes_of_stream(n_features_in, n_classes, self.params, self.online)
        return plan_online(sizes, self.params.budget_bytes, self.held_bytes)

    def machine_for(self, setup: Setup, beside: ThreadPoolExecutor | None) -> OnlineMachine:
        """A machine that has seen nothing."""
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
        """The thread that probes beside the steps, if there may be one."""
        if self._pool is None and n_threads(self.params.n_jobs) > 1:
            self._pool = ThreadPoolExecutor(1, thread_name_prefix="mllkm-probe")
        return self._pool

    def work_with(self, executor: Executor) -> None:
        """Let others do the probes from now on; one that is under way is waited for."""
        self.executor = executor
        if self.started is not None:
            machine = self.started[1]
            machine.probe.result()
            machine.probing = replace(machine.probing, executor=executor, beside=self.beside())

    def __getstate__(self) -> dict[str, Any]:
        """Without what belongs to this process."""
        return {name: value for name, value in vars(self).items() if name not in ("executor", "listen", "_pool")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, listen=None, _pool=None)
        self.work_with(ThreadExecutor())

    def tell(self) -> None:
        if self.listen is not None:
            self.listen(self)

    def close(self) -> None:
        """End what goes on beside; its result is waited for, so that learning may go on later."""
        with self._pool or nullcontext():
            self._pool = None
            if self.started is not None:
                machine = self.started[1]
                machine.probing = replace(machine.probing, beside=None)
                machine.probe.result()


def _extends(columns: Columns | None, known: Columns | None) -> bool:
    """Whether rows that were coded by the known columns have the same codes by these."""
    if columns is None or known is None:
        return columns is known
    return len(columns) == len(known) and all(
        new.kind == old.kind and new.levels[: len(old.levels)] == old.levels
        for new, old in zip(columns.columns, known.columns, strict=True)
    )


def _given(classes: ArrayLike) -> Array:
    found, _ = encode_labels(classes)
    if len(found) < 2:
        raise DataError(f"classes={found.tolist()!r}: give all labels that can come, at least two")
    return found


def _found(labels: Array) -> tuple[Array, Array]:
    """Classes and codes of labels that came without classes."""
    classes, codes = encode_labels(labels)
    if len(classes) < 2:
        raise DataError(
            f"all {len(labels)} samples so far have the label {classes[0].item()!r}: give all labels that can come as"
            " classes"
        )
    check_labels(labels, "the stream's label")
    return classes, codes
