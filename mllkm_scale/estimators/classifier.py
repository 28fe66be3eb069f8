"""`MLLKMClassifier`: the scikit-learn estimator, a thin layer over `train` and `OnlineLearner`."""

from __future__ import annotations

import shutil
import tempfile
import warnings
import weakref
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d, validate_data

from mllkm_scale.base.arrays import Array
from mllkm_scale.base.events import Advice, Event
from mllkm_scale.base.interruption import interruption
from mllkm_scale.cluster import current_client
from mllkm_scale.data import Dataset
from mllkm_scale.data.collections import is_collection
from mllkm_scale.data.tables.coding import Recode, TableCoder
from mllkm_scale.data.tables.frames import as_arrow, is_frame, rows_dataset, values_table
from mllkm_scale.errors import CheckpointError, DataError, InterruptedTraining, ParameterError
from mllkm_scale.estimators.deciding import (
    SKLEARN_ALONE_BYTES,
    SKLEARN_BYTES,
    DecidesByModel,
    OfModel,
    require_labels,
    require_names,
)
from mllkm_scale.model.model import Model
from mllkm_scale.model.names import unique_names
from mllkm_scale.online.learner import OnlineLearner
from mllkm_scale.online.model import ONLINE
from mllkm_scale.online.params import OnlineParams
from mllkm_scale.online.workers import probing_workers
from mllkm_scale.params import changed, defaults, resolve
from mllkm_scale.run.folder import RunFolder
from mllkm_scale.training import TrainResult, train

__all__ = ["MLLKMClassifier"]


# Attributes that a machine that learns online does not have.
_OF_FIT = ("duals_", "history_", "n_iter_", "peak_bytes_", "plan_")


class MLLKMClassifier(DecidesByModel):
    """Multiple Locally Linear Kernel Machine.

    A sparse sum of small linear classifiers, each weighted by a bump around an anchor point. Gradient descent learns
    anchors, widths and a scaling of the features; l1 multiple kernel learning then weighs these kernels, drops those
    that are not needed, and certifies the result by a duality gap. Alternatively, all training samples are candidate
    anchors. With few rows, held-out rows decide between the two by default.

    Parameters
    ----------
    C : "auto" or float
        Weight of the hinge loss against the norm. "auto" is chosen by the error on held-out rows; with given anchors,
        such as "all", it is the number of features after projection divided by 20, and at least 0.5. If rows have
        weights, C_i = C weight_i, and "auto" first divides the weights by their mean.
    map : {"gaussian", "exponential", "linear", "squared"}
        The conformal map h: shape of the bumps.
    componentwise : bool
        One bump per component: the machine is then a sum of functions of single features.
    gammas : "auto", "wide", "narrow", float or list of float
        Scales of the bumps. "auto" spreads half-widths around the median distance of the data. "wide" leaves out those
        below it, and "narrow" adds narrower ones; learned kernels then start with wide bumps, or with more and narrower
        ones. `mllkm_scale.kernels.logspace(0.01, 10, 10)` is the paper's choice.
    anchors : "auto", "learned", "learned:N", "learned+all", "all", int, "kmeans:N" or array (m, n_features)
        Candidate anchors: learned ones, together with their scales and the metric of the features; all training
        samples; a number of random samples; k-means centres; or the given ones. "learned+all" certifies the learned
        kernels against all training samples, "learned+1000" against 1,000 random ones. "auto" is "all" with fewer than
        50 rows; up to 8,000 rows "all" or "learned", whichever has the lower error on held-out rows; and "learned" with
        more rows. If `gammas` are given, it is "all".
    metric : {"auto", "diagonal", "full", None} or int
        The map of the features that is learned with the anchors: a scaling, a linear map, none, or a linear map with
        this number of rows. It becomes part of the model. "auto" is "diagonal".
    ridge : "auto" or float
        When anchors are learned: weight of the squared norms of the local classifiers, times the number of rows,
        against the mean hinge loss. "auto" chooses a value from 0.1 to 128 by the error on held-out rows.
    finish : {"auto", "mkl", "none"}
        What follows after anchors were learned. "mkl": multiple kernel learning computes the weights of the kernels,
        drops those with zero weight, and certifies the result. "none": the learned machine is the result. "auto":
        "mkl", unless it would take too long or has a higher error on held-out rows.
    normalize : {"trace", None}
        Divide each kernel by its mean diagonal over the training samples. Kernels that are nonzero on almost no sample
        are left out.
    local_bias : "auto" or float
        Square of the constant component of each kernel, which makes the local classifiers affine; the paper has 0.
    scaling : {"standard", "minmax", "unit-norm", "none", "quantile", "standard+quantile", "auto"}
        Scaling of the features; part of the model. "quantile" replaces a value by the share of samples below it, and
        "standard+quantile" adds this column to the standard column of the feature. "auto" is "standard"; for learned
        kernels it adds quantile columns that differ enough from the standard ones.
    reduction : {"auto", "svd:N", "random:N", "none"} or None
        Reduction of many columns, sparse or dense, to N features before the scaling: by the right singular vectors of
        the training rows, or by sums with random signs. "auto" reduces sparse rows of more than 1,024 columns to 100
        features by singular vectors, or to 256 random ones if the vectors do not fit the budget.
    n_components : int, float or None
        Principal components kept after the scaling, or their share of variance if below 1.
    whiten : bool
        Give each principal component unit variance.
    multi_class : {"shared", "ovr"}
        Whether all classes share the kernel weights, or each has a machine of its own.
    strategy : {"working-sets", "paper"}
        Two working sets and a second-order solver, or Algorithm 2 of the paper as printed.
    overlap : {"auto", "always", "never"}
        Whether to scan the open kernels while the next round is solved, which saves waiting and costs a few rounds.
        "auto" does so in rounds in which scanning is the larger part of the work. The result depends on this parameter,
        but not on the number of dask workers that scan.
    pricing : {"auto", "full"}
        Whether rounds before the last may scan only a share of the open kernels if scanning all of them would be the
        larger part of the work; the gap of such a round is an estimate. The last round always scans all.
    tol : float
        Certified relative duality gap, over all candidate kernels, at which training ends.
    max_kernels : int or None
        Largest number of kernels of the model, in every round: better kernels replace worse ones.
    max_features : int or None
        Largest number of features that are used: those that matter most to a short descent of learned kernels on a
        sample.
    max_bytes : str, int or None
        Bytes of constants that the model may have in integers of 8 bits on a device, such as "16kB"
        (`mllkm_scale.export.export_integer_c`). Features, directions of the metric, kernels and scaling are chosen on
        held-out rows among the sizes that fit. `map` is then "squared" unless you set another one than the default, and
        the machine stays as it was learned.
    max_rounds, time_limit : int, float or None
        Limits that may end training earlier; `status_` names the limit that did, and `gap_` is the gap that was
        reached. Learning is fitted to the time limit. A limit that is never reached changes no bit of the model.
    memory_budget : str, int or None
        Bound on the peak resident memory of the process, such as "1GB". None: as configured
        (`mllkm_scale.config`), or 2 GB.
    scratch_dir : str or None
        Folder for temporary files: prepared data and Gram tiles that do not fit the budget. None: as configured, or the
        system's.
    random_state : int or None
        Seed; the same seed gives the same bits.
    n_jobs : int or None
        Threads; -1 for one per core. The result does not depend on it. None: as configured, or -1.
    worker_timeout : float or None
        Seconds to wait for the next result of the dask workers before training stops with an error. None: as
        configured, or 300.
    verbose : int
        1 prints a line per round.
    preset : {None, "paper"}
        "paper" has the settings of the paper; parameters that differ from their defaults override it.
    max_samples, window, warm_up : int or None, int or None, int
        For `partial_fit` only: the largest number of samples to keep, the age, in samples, at which a sample is
        forgotten, and the number of first samples from which scaling, projection, gammas and C are computed. See
        `mllkm_scale.online`.
    categories, as_number : list of str or int, or None
        For tables: columns, by name or position, to read as categories or as numbers, whatever their type. By default,
        text and categorical columns are categories, and all others are numbers.
    run_dir : path or None
        Folder for the checkpoint, history, model and report of `fit`, as in `train`. Ctrl-C then stops `fit` at the
        next safe point with a KeyboardInterrupt, and the estimator has the model so far (`status_` is "interrupted").
    warm_start : bool
        Continue the training in `run_dir`, if there is one; the result is the same, bit for bit, as that of an
        uninterrupted one. A larger `max_rounds` or a smaller `tol` continues a training run that has ended. Without a
        `run_dir`, continue from the last `fit` of this object if data and parameters are the same, and otherwise start
        again.
    class_weight : dict, "balanced" or None
        Weight of the rows of each class in the loss, by label; other labels have the weight one. "balanced" gives all
        classes the same sum of weights. These weights multiply the `sample_weight` of `fit`.

    Attributes
    ----------
    classes_ : array (c,)
    anchors_ : array (s, d)
        Anchors of the kernels of the model, in the space after scaling and projection.
    gammas_, kernel_scale_ : arrays (s,)
        Scale of each bump, and the factor of each kernel (its normalisation).
    weights_ : array (s,)
        Kernel weights beta, which sum to one; (K, s) for `multi_class="ovr"` with more than two classes.
    duals_ : array (n, K)
        alpha of every training sample, from 0 to C_i; K is 1 for two classes.
    kernel_coef_, local_coef_ : arrays (K, s, d) and (K, s)
        f_k(x) = sum_m h_m(x) (<x - c_m, kernel_coef_km> + local_coef_km), weights and factors included. There is no
        `coef_`, because scikit-learn interprets it as the weights of the features; `feature_importances_` has these.
    feature_importances_ : array (n_features,)
        How much each feature contributes to the scores; they sum to one. See `Model.feature_importances`.
    C_, local_bias_ : float
        The values that "auto" stands for, or the given ones.
    primal_, dual_, gap_ : float
        Certified bounds on the optimum over all candidate kernels, and their relative gap.
    n_open_ : int
        Number of candidate kernels.
    history_ : list of dict
        One record per round.
    status_ : str
        "converged", the limit that ended training, or "interrupted".
    feature_names_in_ : array (n_features,)
        Names of the columns, if X has names; the model has them, too.
    model_ : Model
        The model, which can be saved and loaded; `predict_proba` uses its `calibration`. After `partial_fit`, it is the
        current machine.
    prequential_error_ : float
        After `partial_fit`: the share of samples that were predicted wrongly before they were learned.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> machine = MLLKMClassifier(n_jobs=1).fit(X[:400], y[:400])
    >>> machine.score(X[400:], y[400:]) > 0.95
    True
    >>> MLLKMClassifier(anchors="all", n_jobs=1).fit(X[:400], y[:400]).gap_ <= 0.01
    True
    """

    def __init__(
        self,
        C: float | str = "auto",
        map: str = "gaussian",
        componentwise: bool = False,
        gammas: str | float | Sequence[float] = "auto",
        anchors: str | int | Array = "auto",
        metric: str | int | None = "auto",
        ridge: float | str = "auto",
        finish: str = "auto",
        normalize: str | None = "trace",
        local_bias: float | str = "auto",
        scaling: str = "auto",
        reduction: str | None = "auto",
        n_components: int | float | None = None,
        whiten: bool = False,
        multi_class: str = "shared",
        strategy: str = "working-sets",
        overlap: str = "auto",
        pricing: str = "auto",
        tol: float = 0.01,
        max_kernels: int | None = None,
        max_features: int | None = None,
        max_bytes: str | int | None = None,
        max_rounds: int | None = None,
        time_limit: float | None = None,
        memory_budget: str | int | None = None,
        scratch_dir: str | None = None,
        random_state: int | None = 0,
        n_jobs: int | None = None,
        worker_timeout: float | None = None,
        verbose: int = 0,
        preset: str | None = None,
        max_samples: int | None = None,
        window: int | None = None,
        warm_up: int = 1024,
        categories: Sequence[str | int] | None = None,
        as_number: Sequence[str | int] | None = None,
        run_dir: str | Path | None = None,
        warm_start: bool = False,
        class_weight: Mapping[Any, float] | str | None = None,
    ) -> None:
        self.C = C
        self.map = map
        self.componentwise = componentwise
        self.gammas = gammas
        self.anchors = anchors
        self.metric = metric
        self.ridge = ridge
        self.finish = finish
        self.normalize = normalize
        self.local_bias = local_bias
        self.scaling = scaling
        self.reduction = reduction
        self.n_components = n_components
        self.whiten = whiten
        self.multi_class = multi_class
        self.strategy = strategy
        self.overlap = overlap
        self.pricing = pricing
        self.tol = tol
        self.max_kernels = max_kernels
        self.max_features = max_features
        self.max_bytes = max_bytes
        self.max_rounds = max_rounds
        self.time_limit = time_limit
        self.memory_budget = memory_budget
        self.scratch_dir = scratch_dir
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.worker_timeout = worker_timeout
        self.verbose = verbose
        self.preset = preset
        self.max_samples = max_samples
        self.window = window
        self.warm_up = warm_up
        self.categories = categories
        self.as_number = as_number
        self.run_dir = run_dir
        self.warm_start = warm_start
        self.class_weight = class_weight

    _model: Model | None = None
    _own_folder: str | None = None  # of a warm start without a run_dir
    _learner: OnlineLearner | None = None
    _coder: TableCoder | None = None  # of a table that is learned online

    def __sklearn_is_fitted__(self) -> bool:
        return self._model is not None or self._learner is not None

    def fit(
        self, X: ArrayLike | Dataset | Any, y: ArrayLike | Any = None, sample_weight: ArrayLike | Any = None
    ) -> Self:
        """Train on arrays, or on a `Dataset` with labels; the workers of an active dask client are used.

        Parameters
        ----------
        X : array (n, d), sparse matrix (n, d), table, collection or Dataset
            Sparse rows are never made dense as a whole; see `reduction`. A table of pandas, polars or Arrow may have
            text, categories, booleans, dates and missing values; `predict` then takes such tables. A dask array or
            DataFrame, or an object of xarray, is computed block by block (by the workers of the active client, if there
            is one) and stored in `scratch_dir`; see `train`.
        y : array (n,) or collection, optional
            Labels; left out for a Dataset.
        sample_weight : array (n,) or collection, optional
            Weight of each row in the loss. A row of weight zero is left out; a whole number counts as so many rows.
        """
        collected = is_collection(X)
        data = self._training_collection(X, y) if collected else self._training_data(X, y)
        told: list[Event] = []
        training = partial(
            train,
            data,
            sample_weight=sample_weight,
            client=current_client(),
            preset=self.preset,
            held_bytes=SKLEARN_ALONE_BYTES if collected else SKLEARN_BYTES,
            listener=told.append,
            **self.training_parameters(),
        )
        self._take(training() if self.run_dir is None and not self.warm_start else self._kept(training))
        for advice in (event for event in told if isinstance(event, Advice)):
            kind = ConvergenceWarning if advice.about == "end" else UserWarning
            warnings.warn(advice.text, kind, stacklevel=2)
        return self

    def _kept(self, training: Callable[..., TrainResult]) -> TrainResult:
        """Train in a folder: Ctrl-C keeps what was learned, and `warm_start` continues from it."""
        if self.run_dir is None and self._own_folder is None:
            self._own_folder = tempfile.mkdtemp(prefix="mllkm-", dir=self.scratch_dir)
            weakref.finalize(self, shutil.rmtree, self._own_folder, ignore_errors=True)
        folder = Path(str(self._own_folder if self.run_dir is None else self.run_dir))
        where: dict[str, Any] = {"run_dir": folder, "report": None if self.run_dir is not None else False}
        resume = self.warm_start and RunFolder(folder).resumable
        with interruption() as stop:
            where["should_stop"] = lambda: stop.requested
            try:
                try:
                    return training(resume=resume, overwrite=self.run_dir is None and not resume, **where)
                except CheckpointError:
                    if self.run_dir is not None:
                        raise
                    return training(overwrite=True, **where)  # other data or parameters than before
            except InterruptedTraining as error:
                if error.result is not None:
                    self._take(error.result)
                raise KeyboardInterrupt(str(error)) from error

    def _take(self, result: TrainResult) -> None:
        """Set the fitted attributes from the result of a training run."""
        self.history_ = [vars(event) for event in result.history]
        self.status_, self.plan_, self.peak_bytes_ = result.status, result.plan, result.peak_bytes
        self.duals_ = result.duals
        self.n_iter_ = len(result.history)
        self._model, self._learner = result.model, None
        self.classes_ = result.model.classes

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = super().__getstate__()
        state.pop("_own_folder", None)  # it is removed with this process
        return state

    def partial_fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        classes: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Learn more samples; fixed rules say when samples are forgotten; see `mllkm_scale.online`.

        The first call starts a new machine, also after `fit`. Every sample counts as a new one.

        Parameters
        ----------
        X : array (n, d) or table
            The first call decides whether it is a table. The first `warm_up` samples decide what its columns hold, and
            the levels of its categories.
        y : array (n,)
        classes : array (c,), optional
            All labels that may occur; required in the first call, unless `fit` has seen them.
        sample_weight : array (n,), optional
            Weight of each sample in the loss. A sample of weight zero is predicted, but not learned.

        Examples
        --------
        >>> from sklearn.datasets import load_digits
        >>> X, y = load_digits(return_X_y=True)
        >>> machine = MLLKMClassifier(warm_up=500)
        >>> for start in range(0, 1500, 300):
        ...     machine = machine.partial_fit(X[start : start + 300], y[start : start + 300], classes=range(10))
        >>> machine.score(X[1500:], y[1500:]) > 0.9, machine.prequential_error_ < 0.1
        (True, True)
        """
        learner = self._learner
        self._refuse_collection(X)
        require_names(X)
        require_labels(y)
        table = self._is_table(X) if learner is None else learner.columns is not None
        if table:
            validate_data(self, X, reset=learner is None, skip_check_array=True)
            labels = column_or_1d(y, warn=True)
        else:
            rows, labels = validate_data(self, X, y, dtype=[np.float64, np.float32], order="C", reset=learner is None)
        check_classification_targets(labels)
        if learner is None:
            classes = getattr(self, "classes_", None) if classes is None else classes
            if classes is None:
                raise ParameterError("classes=None: give all possible labels in the first call of partial_fit")
            online = OnlineParams(self.max_samples, self.window, self.warm_up)
            params = resolve(self.preset, **self.training_parameters())
            learner = OnlineLearner(params, online, classes, held_bytes=SKLEARN_BYTES)
        elif classes is not None and np.unique(classes).tolist() != self.classes_.tolist():
            raise ParameterError(f"classes={classes!r}: the first call of partial_fit named {self.classes_.tolist()}")
        learner.feature_names = unique_names(getattr(self, "feature_names_in_", None))
        if table:
            rows = self._coded(X, learner)
        with probing_workers(learner, current_client()):
            learner.learn(rows, labels, sample_weight=sample_weight)
        for name in _OF_FIT:
            self.__dict__.pop(name, None)
        self.classes_ = np.asarray(learner.classes)
        self._model, self._learner, self.status_ = None, learner, ONLINE
        return self

    def _coded(self, X: Any, learner: OnlineLearner) -> Array:
        """Rows of a table as numbers and codes: levels are added until the warm-up is over."""
        table = as_arrow(X if is_frame(X) else values_table(np.asarray(X, dtype=object)))
        coder = self._coder if learner.n_seen else None
        if coder is None:
            coder = TableCoder(table.column_names, "X", typed=True, **self._table_options())
        if learner.started is not None:
            assert learner.columns is not None
            return rows_dataset(table, learner.columns).part(0, table.num_rows)
        try:
            rows = coder.code(table.columns, lambda row, j: f"X: row {row}, column {table.column_names[j]!r} (0-based)")
        except Recode:
            raise DataError(
                "X has a column of another kind than in the calls before: name it in categories or as_number"
            ) from None
        self._coder = coder
        learner.take_columns(coder.columns(), "X")
        return rows

    def training_parameters(self) -> dict[str, Any]:
        """The parameters for `train`: all of them, or with a preset those that override it."""
        given = {name: getattr(self, name) for name in defaults()}
        return changed(given) if self.preset else given

    def _table_options(self) -> dict[str, Any]:
        given = {"categories": self.categories, "as_number": self.as_number}
        return {name: list(columns) for name, columns in given.items() if columns is not None}

    @property
    def model_(self) -> Model:  # type: ignore[override]
        """The model; after `partial_fit` it is made at each access."""
        if self._model is None:
            if self._learner is None:
                raise AttributeError("there is no model: call fit or partial_fit first")
            self._model = self._learner.model()
        return self._model

    @property
    def prequential_error_(self) -> float:
        if self._learner is None:
            raise AttributeError("there is no prequential error: call partial_fit first")
        return self._learner.prequential.error

    anchors_ = OfModel(lambda model: model.anchors)
    gammas_ = OfModel(lambda model: model.gammas)
    weights_ = OfModel(lambda model: model.weights)
    kernel_scale_ = OfModel(lambda model: model.kernel_scale)
    kernel_coef_ = OfModel(lambda model: model.coef)
    local_coef_ = OfModel(lambda model: model.local_coef)
    primal_ = OfModel(lambda model: model.certificate.primal)
    dual_ = OfModel(lambda model: model.certificate.dual)
    n_open_ = OfModel(lambda model: model.certificate.n_open)
    local_bias_ = OfModel(lambda model: model.family.local_bias)
