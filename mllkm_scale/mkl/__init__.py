"""Kernel weights beta: solvers of the restricted problem, and the outer loops around them."""

from mllkm_scale.mkl.algorithm2 import PaperMKL
from mllkm_scale.mkl.alternating import alternating_mkl
from mllkm_scale.mkl.certificate import Certificate
from mllkm_scale.mkl.interior.interior_point import interior_point
from mllkm_scale.mkl.restricted import Objective, RestrictedProblem, Solution
from mllkm_scale.mkl.sequential import SequentialMKL
from mllkm_scale.mkl.simple import simple_mkl

__all__ = [
    "Certificate",
    "Objective",
    "PaperMKL",
    "RestrictedProblem",
    "SequentialMKL",
    "Solution",
    "alternating_mkl",
    "interior_point",
    "simple_mkl",
]
