"""Restricted problems of a few dozen samples and kernels, with the optimum that a conic solver finds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from mllkm_scale.gram.blocks import MatrixBlock, make_block
from mllkm_scale.kernels.generic import GenericFamily
from mllkm_scale.kernels.grid import Family
from mllkm_scale.mkl.oracle import Oracle
from mllkm_scale.mkl.restricted import RestrictedProblem
from mllkm_scale.solver.box import Box
from mllkm_scale.solver.svm import DenseSVM

FAMILIES = {
    "gaussian": Family("gaussian", False, 0.5),
    "lean": Family("gaussian", False, 0.5),
    "squared": Family("squared", False, 0.0),
    "component-linear": Family("linear", True, 0.5),
    "generic": None,
}


@dataclass(frozen=True)
class Restricted:
    """Blocks of every class, the features of every kernel, and the optimum over all of them."""

    features: list[np.ndarray]
    signs: np.ndarray
    C: np.ndarray  # C_i (n, 1)
    blocks: list
    optimum: float
    lean_blocks: list

    @property
    def problem(self) -> RestrictedProblem:
        """The problem of the interior point: on lean blocks, if there are any."""
        return RestrictedProblem(self.lean_blocks or self.blocks, self.box, lean=bool(self.lean_blocks))

    @property
    def box(self) -> Box:
        """That of the duals of all classes."""
        return Box(1.0, np.tile(self.C[:, 0], len(self.blocks)))

    def oracle(self, max_epochs: int = 1000) -> Oracle:
        """SVMs on dense Grams; a block speaks of y y' o K, an SVM of K."""

        def gram(block):
            return lambda weights: block.gram(weights) * np.outer(block.signs, block.signs)

        svms = [DenseSVM(gram(block), block.signs, Box(1.0, self.C[:, 0])) for block in self.blocks]
        return Oracle(svms, lambda k, duals: self.blocks[k].forms(duals), max_epochs)

    def per_class(self, duals: np.ndarray) -> np.ndarray:
        """Duals of all classes, one after the other, as (n, K)."""
        return duals.reshape(self.signs.shape[::-1]).T


def scaled(features):
    """Unit trace, so that no kernel wins by its size alone."""
    return features / np.sqrt(np.mean(np.sum(features**2, axis=1)))


@pytest.fixture(scope="session", params=["one-class", "three-classes", "weights"])
def data(request, small_problem):
    if request.param != "one-class":
        X, signs = small_problem("wine", 36)
        weights = np.geomspace(0.25, 4.0, 36) if request.param == "weights" else np.ones(36)
        return X[:, :5], signs, 2.0 * weights[:, None]
    X, signs = small_problem("breast_cancer", 45)
    X = X[:, :5].copy()
    X[3] += 30.0  # a sample that no kernel reaches
    return X, signs, np.full((len(X), 1), 2.0)


@pytest.fixture(scope="session", params=FAMILIES)
def restricted(request, data, mkl_reference):
    X, signs, C = data
    family, lean_blocks = FAMILIES[request.param], []
    if family is None:
        generic = GenericFamily.fit(X)
        grams = [generic.gram(id, X, X) for id in range(0, len(generic), 3)]
        features = [mkl_reference.gram_features(K) for K in grams]
        blocks = [MatrixBlock(grams, y) for y in signs.T]
    else:
        anchors, gammas = np.repeat(X[5:17], 2, axis=0), np.tile([0.02, 0.15], 12)
        plain = [
            mkl_reference.kernel_features(
                X, c, g, map=family.map, componentwise=family.componentwise, local_bias=family.local_bias
            )
            for c, g in zip(anchors, gammas, strict=True)
        ]
        features = [scaled(F) for F in plain]
        scales = np.array([1 / np.mean(np.sum(F**2, axis=1)) for F in plain])
        kernels = family.kernels(anchors, gammas, scales)
        blocks = [make_block(kernels, X, y) for y in signs.T]
        if request.param == "lean":
            lean_blocks = [make_block(kernels, X, y, np.float32) for y in signs.T]
    return Restricted(features, signs, C, blocks, mkl_reference.solve(features, signs, C).value, lean_blocks)
