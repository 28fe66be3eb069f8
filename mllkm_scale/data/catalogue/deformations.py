"""Slightly deformed images, each a function of its number and a seed.

A pixel p of a deformed image has the grey value of the original at

    M (p - c) + c + t + e(p)

where c is the centre, M rotates, scales and shears, t shifts, and e is an elastic field: a uniform cubic B-spline over
a coarse grid of random vectors. The value between pixels is interpolated linearly in both directions, and is zero
outside of the image.

Random numbers are hashes of (seed, number, draw), so images can be made in any order and by any process. Only sums,
products and quotients of doubles are used, which IEEE 754 defines to the last bit, so every machine makes the same
bytes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numba
import numpy as np

from mllkm_scale.base.arrays import Array

__all__ = ["Deformation", "deformed"]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MULTIPLIERS = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_SHIFTS = np.uint64(30), np.uint64(27), np.uint64(31)
_UNUSED_BITS = np.uint64(11)


@dataclass(frozen=True)
class Deformation:
    """The size of deformations: each random number is uniform between minus and plus these values."""

    half_turn: float = 0.09  # tangent of half the angle: about 10 degrees
    scale: float = 0.12  # of either axis
    shear: float = 0.12
    shift: float = 1.2  # pixels
    elastic: float = 3.5  # pixels, of a vector of the grid; after the spline about a quarter of it remains
    grid: int = 7  # vectors along an axis


def deformed(images: Array, numbers: Array, seed: int, deformation: Deformation) -> Array:
    """Images (len(numbers), side, side) in uint8: image i is a deformed copy of images[i mod n].

    The first n are the originals themselves.
    """
    side = images.shape[1]
    bases, cells = _spline(side, deformation.grid)
    out = np.empty((len(numbers), side, side), np.uint8)
    extent = np.array(
        [deformation.half_turn, deformation.scale, deformation.shear, deformation.shift, deformation.elastic]
    )
    _deform(images, numbers.astype(np.uint64), np.uint64(seed), extent, deformation.grid, bases, cells, out)
    return out


def _spline(side: int, grid: int) -> tuple[Array, Array]:
    """For each pixel along an axis, the four nonzero basis functions, and the index of the first one."""
    place = np.arange(side) * (grid - 3) / side
    cells = place.astype(np.int64)
    t = place - cells
    bases = np.stack(
        [(1 - t) * (1 - t) * (1 - t), (3 * t - 6) * t * t + 4, ((-3 * t + 3) * t + 3) * t + 1, t * t * t], 1
    )
    return bases / 6, cells


@numba.njit(cache=True, nogil=True)
def _hash(z: Any) -> Any:
    z = (z ^ (z >> _SHIFTS[0])) * _MULTIPLIERS[0]
    z = (z ^ (z >> _SHIFTS[1])) * _MULTIPLIERS[1]
    return z ^ (z >> _SHIFTS[2])


@numba.njit(cache=True, nogil=True)
def _uniform(key: Any, draw: int) -> Any:
    """A random number between -1 and 1."""
    bits = _hash(key + np.uint64(draw + 1) * _GOLDEN) >> _UNUSED_BITS
    return np.float64(np.int64(bits)) * 2.0**-52 - 1.0


@numba.njit(cache=True, nogil=True)
def _deform(
    images: Array, numbers: Array, seed: Any, extent: Array, grid: int, bases: Array, cells: Array, out: Array
) -> None:
    n, side = images.shape[:2]
    centre = (side - 1) / 2
    half_turn, scale, shear, shift, elastic = extent
    field, along = np.empty((2, grid, grid)), np.empty((2, grid))
    for at in range(len(numbers)):
        number = numbers[at]
        image = images[np.int64(number % np.uint64(n))]
        if number < np.uint64(n):
            out[at] = image
            continue
        key = _hash(_hash(seed + _GOLDEN) + number)
        half = half_turn * _uniform(key, 0)
        cosine, sine = (1.0 - half * half) / (1.0 + half * half), 2.0 * half / (1.0 + half * half)
        tall, wide, slant = 1.0 + scale * _uniform(key, 1), 1.0 + scale * _uniform(key, 2), shear * _uniform(key, 3)
        yy, yx = cosine * tall, sine * wide + slant * cosine * tall
        xy, xx = -sine * tall, cosine * wide - slant * sine * tall
        y0, x0 = centre + shift * _uniform(key, 4), centre + shift * _uniform(key, 5)
        draw = 6
        for i in range(grid):
            for j in range(grid):
                field[0, i, j] = elastic * _uniform(key, draw)
                field[1, i, j] = elastic * _uniform(key, draw + 1)
                draw += 2
        for row in range(side):
            for axis in range(2):
                for j in range(grid):
                    along[axis, j] = 0.0
                    for k in range(4):
                        along[axis, j] += bases[row, k] * field[axis, cells[row] + k, j]
            for column in range(side):
                dy, dx = row - centre, column - centre
                y, x = y0 + yy * dy + yx * dx, x0 + xy * dy + xx * dx
                for k in range(4):
                    y += bases[column, k] * along[0, cells[column] + k]
                    x += bases[column, k] * along[1, cells[column] + k]
                out[at, row, column] = np.uint8(_grey(image, y, x) + 0.5)


@numba.njit(cache=True, nogil=True)
def _grey(image: Array, y: float, x: float) -> float:
    """The interpolated value of an image."""
    i, j = math.floor(y), math.floor(x)
    v, u = y - i, x - j
    upper = (1.0 - u) * _pixel(image, i, j) + u * _pixel(image, i, j + 1)
    lower = (1.0 - u) * _pixel(image, i + 1, j) + u * _pixel(image, i + 1, j + 1)
    return (1.0 - v) * upper + v * lower


@numba.njit(cache=True, nogil=True)
def _pixel(image: Array, i: int, j: int) -> float:
    inside = 0 <= i < image.shape[0] and 0 <= j < image.shape[1]
    return np.float64(image[i, j]) if inside else 0.0
