"""Deformed images: the formula, the file and its checksums."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mllkm_scale.data import Dataset
from mllkm_scale.data.catalogue import ENTRIES, GENERATED, Data, generate, generated, load
from mllkm_scale.data.catalogue.deformations import Deformation, deformed
from mllkm_scale.data.hdf5_source import HDF5Source
from mllkm_scale.errors import DataError, ParameterError

IMAGES = np.random.default_rng(0).integers(0, 256, size=(5, 28, 28)).astype(np.uint8)
LABELS = np.array([3, 1, 4, 1, 5], np.int32)
MNIST8M = GENERATED["mnist8m"]
MASK = 2**64 - 1


def hashed(z: int) -> int:
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def by_the_formula(image: np.ndarray, number: int, seed: int, far: Deformation) -> np.ndarray:
    """M (p - c) + c + t + e(p), pixel by pixel; SciPy evaluates the splines and interpolates."""
    from scipy.interpolate import BSpline
    from scipy.ndimage import map_coordinates

    golden = 0x9E3779B97F4A7C15
    key = hashed((hashed((seed + golden) & MASK) + number) & MASK)
    random = iter(range(10**6))

    def draw() -> float:
        return (hashed((key + (next(random) + 1) * golden) & MASK) >> 11) * 2.0**-52 - 1.0

    side, g = len(image), far.grid
    turn, tall, wide, slant = far.half_turn * draw(), 1 + far.scale * draw(), 1 + far.scale * draw(), far.shear * draw()
    angle = 2 * np.arctan(turn)
    rotation = np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]])
    M = rotation @ np.array([[tall, 0], [0, wide]]) + slant * rotation @ np.array([[0, tall], [0, 0]])
    t = far.shift * np.array([draw(), draw()])
    vectors = np.array([far.elastic * draw() for _ in range(2 * g * g)]).reshape(g, g, 2)
    basis = BSpline(np.arange(-3, g + 1), np.eye(g), 3)(np.arange(side) * (g - 3) / side)
    c = (side - 1) / 2
    p = np.stack(np.meshgrid(np.arange(side), np.arange(side), indexing="ij")) - c
    places = (
        np.einsum("ab,bij->aij", M, p) + (c + t)[:, None, None] + np.einsum("iu,jv,uva->aij", basis, basis, vectors)
    )
    bordered = np.pad(image.astype(float), 20)
    return map_coordinates(bordered, places + 20, order=1, mode="constant")


@settings(max_examples=20, deadline=None)
@given(st.integers(5, 2**40), st.integers(0, 2**31), st.integers(4, 9))
def test_an_image_is_deformed_by_the_formula(number: int, seed: int, grid: int) -> None:
    far = replace(Deformation(), grid=grid)
    found = deformed(IMAGES, np.array([number]), seed, far)[0]
    expected = by_the_formula(IMAGES[number % 5], number, seed, far)
    assert np.abs(found - expected).max() <= 0.5 + 1e-6  # rounded to whole grey values


def test_an_image_depends_on_its_number_alone() -> None:
    numbers = np.array([17, 4, 900, 6])
    together = deformed(IMAGES, numbers, 0, Deformation())
    alone = [deformed(IMAGES, numbers[i : i + 1], 0, Deformation())[0] for i in range(4)]
    assert np.array_equal(together, alone)
    assert not np.array_equal(together, deformed(IMAGES, numbers, 1, Deformation()))
    assert np.array_equal(deformed(IMAGES, np.arange(5), 0, Deformation()), IMAGES)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A data set of five images with 400 copies, whose originals are in the place of MNIST's."""
    entry = replace(MNIST8M, rows=(2000, 2), copies=("",) * 400)
    base = Data(
        "mnist",
        "here",
        ENTRIES["mnist"].content,
        None,
        IMAGES.reshape(5, -1),
        LABELS,
        IMAGES[:2].reshape(2, -1),
        LABELS[:2],
    )
    monkeypatch.setattr(generated, "load", lambda name, notice: base)
    monkeypatch.setitem(GENERATED, "mnist8m", entry)
    made = generate("mnist8m", tmp_path)
    sums = generated.copy_checksums(HDF5Source(made.path, "X"), HDF5Source(made.path, "y"), 5, lambda done, of: None)
    monkeypatch.setitem(GENERATED, "mnist8m", replace(entry, copies=tuple(sums)))
    return tmp_path


def test_the_file_has_the_images_in_their_order(small: Path) -> None:
    with Dataset.open(small / "mnist8m.h5") as data:
        assert data.n_rows == 2000
        assert np.array_equal(data.part(0, 2000), deformed(IMAGES, np.arange(2000), 0, Deformation()).reshape(2000, -1))
        assert np.array_equal(data.labels(), np.resize(LABELS, 2000))
    with Dataset.open(small / "mnist8m.h5", "X_test", "y_test") as tests:
        assert np.array_equal(tests.part(0, 2), IMAGES[:2].reshape(2, -1))


def test_any_number_of_threads_makes_the_same_bytes(small: Path, tmp_path: Path) -> None:
    for n_jobs in (1, 3):
        (tmp_path / str(n_jobs)).mkdir()
        generate("mnist8m", tmp_path / str(n_jobs), n_jobs=n_jobs)
        assert (tmp_path / str(n_jobs) / "mnist8m.h5").read_bytes() == (small / "mnist8m.h5").read_bytes()


def test_a_part_is_the_first_rows(small: Path) -> None:
    told: list[tuple[int, int]] = []
    part = generate("mnist8m", small, rows=1234, progress=lambda done, of: told.append((done, of)))
    assert part.path == small / "mnist8m-1234.h5"
    assert told[-1] == (1234, 1234)
    with h5py.File(part.path) as some, h5py.File(small / "mnist8m.h5") as whole:
        assert np.array_equal(some["X"][...], whole["X"][:1234])
        assert np.array_equal(some["y"][...], whole["y"][:1234])


def test_what_is_there_is_verified_and_used_again(small: Path) -> None:
    written = (small / "mnist8m.h5").stat().st_mtime_ns
    assert generate("mnist8m", small).n_rows == 2000
    assert (small / "mnist8m.h5").stat().st_mtime_ns == written
    with h5py.File(small / "mnist8m.h5", "r+") as file:
        file["X"][1503, 7] ^= 1
    with pytest.raises(DataError, match="copy 300 of the images is not that of the catalogue"):
        generate("mnist8m", small)
    generate("mnist8m", small, overwrite=True)
    generate("mnist8m", small)


def test_another_file_of_that_name_is_left_alone(small: Path) -> None:
    with h5py.File(small / "mnist8m-7.h5", "w") as file:
        file["X"], file["y"] = np.zeros((7, 2)), np.zeros(7)
    before = (small / "mnist8m-7.h5").read_bytes()
    with pytest.raises(ParameterError, match=r"mnist8m-7\.h5 exists already, and has other rows than mnist8m"):
        generate("mnist8m", small, rows=7)
    assert (small / "mnist8m-7.h5").read_bytes() == before


def test_originals_of_ones_own_are_refused(small: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    own = Data("mnist", "here", "", tmp_path / "mnist.npz", IMAGES.reshape(5, -1), LABELS)
    monkeypatch.setattr(generated, "load", lambda name, notice: own)
    with pytest.raises(DataError, match="differs from the catalogue's mnist"):
        generate("mnist8m", tmp_path / "new")


@pytest.mark.parametrize("rows", [0, -1, 2001])
def test_no_more_rows_than_there_are(small: Path, rows: int) -> None:
    with pytest.raises(ParameterError, match="between 1 and 2,000 rows"):
        generate("mnist8m", small, rows=rows)


def test_it_is_not_loaded_as_arrays() -> None:
    with pytest.raises(ParameterError, match="mllkm fetch mnist8m"):
        load("mnist8m")


def test_the_first_deformed_copy_is_that_of_the_catalogue(
    real_data: Callable[[str], tuple], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    real_data("mnist")
    monkeypatch.setenv("MLLKM_DATA", os.environ.get("MLLKM_DATA") or str(Path(__file__).parents[3] / "shared" / "data"))
    made = generate("mnist8m", tmp_path, rows=120_000)
    assert generate("mnist8m", tmp_path, rows=120_000).n_rows == made.n_rows
    assert len(MNIST8M.copies) == 135
    assert MNIST8M.copy_rows == 60_000
