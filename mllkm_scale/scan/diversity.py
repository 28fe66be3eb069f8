"""Which of the violating kernels to insert: the worst, but none that would repeat another one's part.

The scan prices every kernel alone, so its best candidates crowd around the same anchors and differ little. Kernels
whose responses <phi_m(x), v_m> are nearly parallel on the support vectors would add the same function to the
classifier.
"""

from __future__ import annotations

import numpy as np

from mllkm_scale.base.arrays import Array

__all__ = ["diverse"]


LARGEST_COSINE = 0.9


def diverse(responses: Array, count: int) -> Array:
    """Positions of at most `count` candidates, best first, no two with a cosine above `LARGEST_COSINE`.

    Parameters
    ----------
    responses : array (K, rows, candidates)
        Responses of the candidates, which are sorted from the best to the worst.

    Examples
    --------
    >>> diverse(np.array([[[1.0, 2.0, 0.0], [0.0, 0.1, 1.0]]]), 2).tolist()
    [0, 2]
    """
    R = responses.reshape(-1, responses.shape[-1])
    R = R / np.maximum(np.sqrt(np.einsum("ij,ij->j", R, R)), np.finfo(float).tiny)
    free = np.ones(R.shape[1], dtype=bool)
    chosen: list[int] = []
    while len(chosen) < count and free.any():
        best = int(free.argmax())
        chosen.append(best)
        free &= R.T @ R[:, best] <= LARGEST_COSINE
        free[best] = False
    return np.array(chosen, dtype=np.int64)
