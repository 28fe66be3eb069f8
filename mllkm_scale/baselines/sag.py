"""Stochastic Average Gradient for the primal linear SVM, with a hinge that has a derivative.

    min over w:   F(w) = 1/2 |w|^2 + C sum_i loss(y_i <w, x_i>),      x_i with a constant 1 appended for the bias

Both losses are a Huber function of the shortfall t = max(0, 1 - margin), quadratic up to a width and linear beyond:

    loss = curvature * (1/2 t^2  if t <= width,  else  width t - 1/2 width^2)
    squared hinge: curvature 2, width infinite;      smoothed hinge: curvature 1 / width

SAG (Le Roux, Schmidt and Bach 2012; Schmidt, Le Roux and Bach 2017) remembers the last derivative of each sample's
loss, so that every step follows the average gradient of all samples at the price of one. F is 1-strongly convex, hence

    F(w) - min F  <=  1/2 |grad F(w)|^2

which is also the duality gap of w and the duals alpha_i = -C loss'(margin_i): the stopping rule.
"""

from __future__ import annotations

import math

import numba
import numpy as np

from mllkm_scale.base.arrays import Array
from mllkm_scale.baselines.base import LinearBaseline, check_choice, check_count, check_positive, seed_of, warn_of_gap

__all__ = ["SAGClassifier", "sag_epoch"]

LOSSES = ("squared_hinge", "smoothed_hinge")
_CHECK_EVERY = 5  # epochs between two evaluations of the gap
_FLAT = 1e-8  # squared gradients below it say nothing about the curvature (the article's threshold)


class SAGClassifier(LinearBaseline):
    """Linear SVM by Stochastic Average Gradient; more than two classes are one against the rest.

    scikit-learn's own "sag" solvers minimise only the logistic and the squared loss; neither gives an SVM.

    Parameters
    ----------
    C : float, default=1.0
        Weight of the losses against the norm.
    loss : {"squared_hinge", "smoothed_hinge"}, default="squared_hinge"
        `max(0, 1 - m)^2`, or the hinge made quadratic between the margins `1 - width` and 1.
    width : float, default=0.5
        Width of the smoothed hinge's quadratic part; the squared hinge has none.
    fit_intercept : bool, default=True
        Learn a bias. It is the weight of a constant feature 1, and regularised with the other weights, as in LIBLINEAR.
    tol : float, default=1e-4
        Relative duality gap `1/2 |grad F|^2 / F` at which training stops.
    max_iter : int, default=1000
        Largest number of epochs (n steps each) for one class.
    random_state : int or None, default=0
        Seed of the order in which the samples are drawn, with replacement.

    Attributes
    ----------
    coef_ : ndarray of shape (K, d)
        Weights; K is 1 for two classes.
    intercept_ : ndarray of shape (K,)
        Biases.
    gap_ : ndarray of shape (K,)
        Relative duality gap reached for each class.
    n_iter_ : ndarray of shape (K,)
        Epochs run for each class.

    References
    ----------
    N. Le Roux, M. Schmidt, F. Bach, "A stochastic gradient method with an exponential convergence rate for finite
    training sets", NIPS 2012. M. Schmidt, N. Le Roux, F. Bach, "Minimizing finite sums with the stochastic average
    gradient", Mathematical Programming 162, 2017.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from sklearn.preprocessing import scale
    >>> X, y = load_wine(return_X_y=True)
    >>> SAGClassifier().fit(scale(X), y).score(scale(X), y) > 0.99
    True
    """

    def __init__(
        self,
        C: float = 1.0,
        *,
        loss: str = "squared_hinge",
        width: float = 0.5,
        fit_intercept: bool = True,
        tol: float = 1e-4,
        max_iter: int = 1000,
        random_state: int | None = 0,
    ) -> None:
        self.C = C
        self.loss = loss
        self.width = width
        self.fit_intercept = fit_intercept
        self.tol = tol
        self.max_iter = max_iter
        self.random_state = random_state

    def _learn(self, X: Array, signs: Array) -> None:
        check_positive(C=self.C, width=self.width, tol=self.tol)
        check_choice(LOSSES, loss=self.loss)
        check_count(max_iter=self.max_iter)
        features = self._features(X)
        seed, classes = seed_of(self.random_state), signs.shape[1]
        weights = np.zeros((classes, features.shape[1]))
        self.gap_, self.n_iter_ = np.zeros(classes), np.zeros(classes, dtype=np.intp)
        for k in range(classes):
            # Every class draws the same order, as if it were trained alone.
            rng = np.random.default_rng(seed)
            self.gap_[k], self.n_iter_[k] = self._minimise(features, np.ascontiguousarray(signs[:, k]), rng, weights[k])
        warn_of_gap("SAG", self.gap_.max(), self.tol, self.max_iter)
        self._set_weights(weights)

    def _minimise(self, features: Array, signs: Array, rng: np.random.Generator, w: Array) -> tuple[float, int]:
        """Epochs until the gap is small enough, w changed in place; the relative gap, and the number of epochs."""
        n, C = len(features), float(self.C)
        curvature, width = (2.0, math.inf) if self.loss == "squared_hinge" else (1.0 / self.width, float(self.width))
        squared_norms = np.einsum("ij,ij->i", features, features)
        derivatives, total = np.full(n, np.nan), np.zeros_like(w)
        progress = np.array([1.0, 0.0])
        done = 0
        while True:
            for _ in range(min(_CHECK_EVERY, self.max_iter - done)):
                draws = rng.integers(n, size=n)
                sag_epoch(features, squared_norms, signs, C, curvature, width, draws, derivatives, total, w, progress)
                done += 1
            gap = _relative_gap(features, signs, C, curvature, width, w)
            if gap <= self.tol or done >= self.max_iter:
                return gap, done


def _relative_gap(features: Array, signs: Array, C: float, curvature: float, width: float, w: Array) -> float:
    shortfall = np.maximum(0.0, 1.0 - signs * (features @ w))
    inside = np.minimum(shortfall, width)
    objective = 0.5 * float(w @ w) + C * curvature * float(inside @ (shortfall - 0.5 * inside))
    gradient = w - C * curvature * ((signs * inside) @ features)
    return 0.5 * float(gradient @ gradient) / objective if objective > 0 else 0.0


@numba.njit(cache=True, nogil=True)
def _loss(output: float, sign: float, curvature: float, width: float) -> float:
    shortfall = max(0.0, 1.0 - sign * output)
    inside = min(shortfall, width)
    return curvature * inside * (shortfall - 0.5 * inside)


@numba.njit(cache=True, nogil=True, fastmath={"contract", "reassoc"})
def sag_epoch(
    features: Array,
    squared_norms: Array,
    signs: Array,
    C: float,
    curvature: float,
    width: float,
    draws: Array,
    derivatives: Array,
    total: Array,
    w: Array,
    progress: Array,
) -> None:
    """One step for each sample drawn, on F / (n C) = decay / 2 |w|^2 + mean loss.

    As in the article, the mean is over the samples drawn so far, and the Lipschitz constant is doubled where a line
    search finds it too small, and halved slowly, once in an epoch. Changed in place are

    derivatives  (n,) last derivative of each sample's loss by its output; NaN for those not yet drawn
    total        (p,) sum of derivatives_i x_i
    w            (p,) the weights
    progress     (2,) estimate of the losses' Lipschitz constant; number of samples drawn so far
    """
    n = len(signs)
    decay = 1.0 / (n * C)
    relax = 2.0 ** (-1.0 / n)
    lipschitz, seen = progress
    for i in draws:
        output = 0.0
        for p in range(len(w)):
            output += features[i, p] * w[p]
        derivative = -curvature * signs[i] * min(max(0.0, 1.0 - signs[i] * output), width)
        change = derivative
        if math.isnan(derivatives[i]):
            seen += 1.0
        else:
            change -= derivatives[i]
        derivatives[i] = derivative

        # Line search: a step of 1 / lipschitz on this sample's loss must decrease it as much as smoothness promises.
        slope = derivative * derivative * squared_norms[i]
        if slope > _FLAT:
            now = _loss(output, signs[i], curvature, width)
            while (
                _loss(output - derivative * squared_norms[i] / lipschitz, signs[i], curvature, width)
                > now - 0.5 * slope / lipschitz
            ):
                lipschitz *= 2.0
        step = 1.0 / (lipschitz + decay)

        shrink, pull = 1.0 - step * decay, step / seen
        for p in range(len(w)):
            total[p] += change * features[i, p]
            w[p] = shrink * w[p] - pull * total[p]
        lipschitz *= relax
    progress[0], progress[1] = lipschitz, seen
