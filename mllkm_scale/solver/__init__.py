"""The SVM of one class for given weights: on a dense Gram matrix, on tiles, and on explicit features."""

from mllkm_scale.solver.box import Box
from mllkm_scale.solver.feature_svm import FeatureSVM
from mllkm_scale.solver.newton import newton_finish
from mllkm_scale.solver.svm import SVM, DenseSVM, SVMSolution
from mllkm_scale.solver.tiled_svm import TiledSVM

__all__ = ["SVM", "Box", "DenseSVM", "FeatureSVM", "SVMSolution", "TiledSVM", "newton_finish"]
