"""Local Deep Kernel Learning: a tree of gated linear predictors, of which each sample uses one path.

    f(x) = sum over the nodes k on the path of x of  tanh(sigma v_k'x) w_k'x,     the path by the signs of theta_j'x

This is an SVM whose kernel k(x, z) = <phi(x), phi(z)> <x, z> has a sparse local part phi that is learned with the tree.
Prediction costs O(depth d) a class, whatever the number of training samples.

Training is stochastic descent in the primal, on a relaxation whose paths harden as it goes on. Each class has one tree,
P = (Theta, V, W) are its parameters, x has a constant 1 appended, and the signs y are -1 or +1:

    min over P:   lambda_theta/2 |Theta|^2 + lambda_V/2 |V|^2 + lambda_W/2 |W|^2 + mean_i max(0, 1 - y_i f(x_i))

    f(x) = sum over nodes k of  I_k(x) tanh(sigma v_k'x) w_k'x,     I_k(x) the soft path of `ldkl_tree`

All parameters are rows of one array, so that a mini-batch costs two matrix products whatever the number of classes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from mllkm_scale.base.arrays import Array
from mllkm_scale.baselines.base import Baseline, check_count, check_positive, seed_of
from mllkm_scale.baselines.ldkl_tree import path_scores, route_slopes, soft_paths

__all__ = ["Forest", "LDKLClassifier", "mean_hinge", "slopes_in_place"]

TINY = 1e-300  # in place of a mean that is zero
STEEPNESS = (0.1, 100.0)  # s |theta'x| on average: nearly no routing at the start of training, a hard path at its end
LARGEST_BATCH = 256  # by default: an epoch of larger ones costs as much, and takes fewer steps
DECAYS = (0.9, 0.999)  # of Adam's running means of the gradient and of its square


@dataclass(frozen=True)
class Forest:
    """Parameters (K, J + 2M, d + 1) of K trees of one depth: routes Theta, gates V and predictors W, in this order."""

    parameters: Array
    depth: int

    @property
    def n_routes(self) -> int:
        """J, the inner nodes of a tree."""
        return 2**self.depth - 1

    @property
    def n_nodes(self) -> int:
        """M, all nodes of a tree."""
        return 2 ** (self.depth + 1) - 1

    @property
    def parts(self) -> tuple[slice, slice, slice]:
        """Where routes, gates and predictors are along the axis of length J + 2M."""
        J, M = self.n_routes, self.n_nodes
        return slice(J), slice(J, J + M), slice(J + M, None)

    def project(self, rows: Array) -> Array:
        """All inner products (b, K, J + 2M) of rows (b, d + 1), the constant included."""
        K, width, _ = self.parameters.shape
        return (rows @ self.parameters.reshape(K * width, -1).T).reshape(len(rows), K, width)


def mean_hinge(forest: Forest, rows: Array, signs: Array, sigma: float, steepness: float) -> tuple[float, Array]:
    """Mean hinge loss over rows (b, d + 1), summed over trees, and its gradient in the shape of the parameters.

    The sharpness of a tree is s = steepness / mean |theta'x|, so that `steepness` says how hard its turns are whatever
    the scale that Theta has reached; s counts as a constant in the gradient.
    """
    projected = forest.project(rows)
    spread = np.abs(projected[..., forest.parts[0]]).mean(axis=(0, 2), keepdims=True)
    loss = slopes_in_place(forest, projected, signs, sigma, steepness / np.maximum(spread, TINY))
    gradient = projected.reshape(len(rows), -1).T @ rows
    return loss, gradient.reshape(forest.parameters.shape)


def slopes_in_place(forest: Forest, projected: Array, signs: Array, sigma: float, sharpness: Array) -> float:
    """The mean hinge loss, from all inner products (b, K, J + 2M), each of which is replaced by its derivative."""
    routes, gates, outputs = (projected[..., part] for part in forest.parts)
    turns, opened = np.tanh(sharpness * routes), np.tanh(sigma * gates)
    paths, slopes = np.empty_like(opened), np.empty_like(turns)
    soft_paths(turns, paths)
    shares = paths * opened * outputs
    slack = 1.0 - signs * shares.sum(axis=2)
    route_slopes(turns, shares, slopes)

    pull = np.where(slack > 0.0, -signs, 0.0)[..., None] / len(signs)  # d loss / d f
    routes[...] = pull * sharpness * slopes
    gates[...] = pull * sigma * paths * outputs * (1.0 - opened**2)
    outputs[...] = pull * paths * opened
    return float(np.maximum(slack, 0.0).sum() / len(signs))


class LDKLClassifier(Baseline):
    """Local Deep Kernel Learning: each sample is scored by the nodes on its path through a learned tree.

    The problem and its relaxation are those of the paper. The steps are those of Adam instead of 1 / (lambda sqrt(t)),
    in units of `1 / root mean |x|^2`, so that one step length serves many data sets. The paper treats two classes; more
    classes have one tree each, one against the rest. Scale the features to similar ranges around zero.

    Parameters
    ----------
    depth : int
        Depth D of the trees: they have 2^(D+1) - 1 nodes, and a sample visits D + 1 of them.
    lambda_w, lambda_v, lambda_theta : float
        Weights of the squared norms of predictors, gates and routes against the mean hinge loss. On features
        scaled around zero, 1e-4 (many samples) to 1e-2 (few) work.
    sigma : float
        Sharpness of the gates tanh(sigma v'x).
    epochs : int
        Passes over the training samples.
    batch_size : int or None
        Samples of a mini-batch; None for sqrt(n), at most 256.
    learning_rate : float
        First step, relative to the initial scale of the parameters; steps decrease linearly to zero.
    random_state : int or None
        Seed of the initial parameters and of the order of the samples.

    Attributes
    ----------
    classes_ : array (n_classes,)
        Labels.
    routes_ : array (K, 2^D - 1, d + 1)
        theta of the inner nodes, the bias last; K is 1 for two classes.
    gates_, predictors_ : array (K, 2^(D+1) - 1, d + 1)
        v and w of all nodes, the bias last.
    losses_ : array (epochs,)
        Relaxed mean hinge loss during each epoch, summed over the classes.

    References
    ----------
    C. Jose, P. Goyal, P. Aggrwal, M. Varma. Local Deep Kernel Learning for Efficient Non-linear SVM Prediction.
    ICML 2013.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> X, y = load_digits(return_X_y=True)
    >>> X = X / 8 - 1
    >>> bool(LDKLClassifier(epochs=20).fit(X[::2], y[::2]).score(X[1::2], y[1::2]) > 0.96)
    True
    """

    def __init__(
        self,
        depth: int = 3,
        *,
        lambda_w: float = 1e-3,
        lambda_v: float = 1e-3,
        lambda_theta: float = 1e-3,
        sigma: float = 1.0,
        epochs: int = 40,
        batch_size: int | None = None,
        learning_rate: float = 0.05,
        random_state: int | None = 0,
    ) -> None:
        self.depth = depth
        self.lambda_w = lambda_w
        self.lambda_v = lambda_v
        self.lambda_theta = lambda_theta
        self.sigma = sigma
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.random_state = random_state

    def _learn(self, X: Array, signs: Array) -> None:
        check_count(depth=self.depth, epochs=self.epochs)
        if self.batch_size is not None:
            check_count(batch_size=self.batch_size)
        check_positive(lambda_w=self.lambda_w, lambda_v=self.lambda_v, lambda_theta=self.lambda_theta)
        check_positive(sigma=self.sigma, learning_rate=self.learning_rate)
        rng = np.random.default_rng(seed_of(self.random_state))
        rows = np.column_stack([X, np.ones(len(X))])
        unit = 1.0 / math.sqrt(np.einsum("ij,ij->", rows, rows) / len(rows))
        forest = _random_forest(self.depth, signs.shape[1], rows.shape[1], unit, rng)
        self.losses_ = self._descend(forest, rows, signs, unit * self.learning_rate, rng)
        self.routes_, self.gates_, self.predictors_ = (
            np.ascontiguousarray(forest.parameters[:, part]) for part in forest.parts
        )

    def _descend(self, forest: Forest, rows: Array, signs: Array, step: float, rng: np.random.Generator) -> Array:
        """Change the parameters in place by mini-batches whose paths get harder; the mean loss of each epoch."""
        n = len(rows)
        size = min(n, self.batch_size or min(math.isqrt(n), LARGEST_BATCH))
        batches = n // size
        steepness = np.geomspace(*STEEPNESS, self.epochs * batches)
        lambdas = np.empty((forest.parameters.shape[1], 1))
        for part, value in zip(forest.parts, (self.lambda_theta, self.lambda_v, self.lambda_w), strict=True):
            lambdas[part] = value
        adam, losses = Adam(forest.parameters), np.zeros(self.epochs)
        for epoch in range(self.epochs):
            order = rng.permutation(n)
            for batch in range(batches):
                chosen, t = order[batch * size : (batch + 1) * size], epoch * batches + batch
                loss, gradient = mean_hinge(forest, rows[chosen], signs[chosen], self.sigma, steepness[t])
                gradient += lambdas * forest.parameters
                adam.step(gradient, step * (1.0 - t / len(steepness)))
                losses[epoch] += loss / batches
        return losses

    def _scores(self, X: Array) -> Array:
        scores = np.empty((len(X), len(self.gates_)))
        path_scores(X, self.routes_, self.gates_, self.predictors_, float(self.sigma), scores)
        return scores


class Adam:
    """Steps along the running mean of the gradient over the root of that of its square (Kingma and Ba, 2015)."""

    def __init__(self, parameters: Array) -> None:
        self.parameters = parameters
        self.mean, self.square = np.zeros_like(parameters), np.zeros_like(parameters)
        self.steps = 0

    def step(self, gradient: Array, length: float) -> None:
        """Move the parameters, in place."""
        self.steps += 1
        first, second = DECAYS
        self.mean += (1.0 - first) * (gradient - self.mean)
        self.square += (1.0 - second) * (gradient**2 - self.square)
        # Both means start from zero, hence their corrections.
        length *= math.sqrt(1.0 - second**self.steps) / (1.0 - first**self.steps)
        self.parameters -= length * self.mean / (np.sqrt(self.square) + 1e-12)


def _random_forest(depth: int, K: int, width: int, unit: float, rng: np.random.Generator) -> Forest:
    """Normal parameters of such a size that inner products with the rows are of the order of one."""
    nodes = 2 ** (depth + 1) - 1
    return Forest(unit * rng.standard_normal((K, nodes // 2 + 2 * nodes, width)), depth)
