"""The shape of images that are rows of features: parsing, and a check against the number of features."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

import numpy as np

from mllkm_scale.errors import ParameterError

__all__ = ["ImageShape", "read_image_shape", "require_image_shape"]

ImageShape = tuple[int, ...]
"""Height and width of grey images; a third number, 3, for red, green and blue of each pixel."""

_TEXT = re.compile(r"\s*(\d+)\s*x\s*(\d+)\s*(?:x\s*(\d+)\s*)?", re.IGNORECASE)
_REMEDY = "give height and width such as 28x28, or 32x32x3 for colours"


def read_image_shape(shape: str | Sequence[int]) -> ImageShape:
    """The shape, given as numbers, or as text such as 28x28, or 32x32x3 for colours.

    >>> read_image_shape("28x28"), read_image_shape("32x32x3"), read_image_shape([8, 8])
    ((28, 28), (32, 32, 3), (8, 8))
    """
    if not isinstance(shape, str):
        return _checked(shape)
    match = _TEXT.fullmatch(shape)
    if match is None:
        raise ParameterError(f"image_shape={shape!r}: {_REMEDY}")
    return _checked(tuple(int(number) for number in match.groups() if number is not None))


def require_image_shape(shape: str | Sequence[int], n_features: int) -> ImageShape:
    """The shape as numbers, if such images have this number of features; otherwise a ParameterError.

    >>> require_image_shape("8x8", 64), require_image_shape([2, 3], 6)
    ((8, 8), (2, 3))
    """
    found = read_image_shape(shape)
    if math.prod(found) != n_features:
        raise ParameterError(
            f"image_shape={'x'.join(map(str, found))} has {math.prod(found)} pixels, but a row has {n_features}"
            f" features: {_REMEDY}"
        )
    return found


def _checked(shape: Sequence[int]) -> ImageShape:
    numbers = all(isinstance(size, int | np.integer) and not isinstance(size, bool) and size > 0 for size in shape)
    if not numbers or len(shape) not in (2, 3) or (len(shape) == 3 and shape[2] != 3):
        raise ParameterError(f"image_shape={shape!r}: {_REMEDY}")
    return tuple(int(size) for size in shape)
