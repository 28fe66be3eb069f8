"""What the passes hold in memory is bounded, whatever the sizes."""

from __future__ import annotations

from mllkm_scale.plan.passes import scan_bytes
from mllkm_scale.plan.sizes import Sizes


def test_the_memory_of_the_passes_does_not_grow_with_candidates_and_classes_and_features():
    few, many = (Sizes(10_000, 784, 784, 4, K, 10_000, 5, False, 2) for K in (2, 20))
    assert scan_bytes(many, threads=2) < 2 * scan_bytes(few, threads=2)
