"""Models of several sizes, to choose from: trained along a path of C, or of the number of kernels."""

from mllkm_scale.path.limits import Limits, parse_limits
from mllkm_scale.path.points import PathPoint, best_point, front, knee_point
from mllkm_scale.path.training import PathResult, train_path

__all__ = ["Limits", "PathPoint", "PathResult", "best_point", "front", "knee_point", "parse_limits", "train_path"]
