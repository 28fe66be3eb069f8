"""An archive file gives back what was written, or says that it cannot."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from mllkm_scale import __version__
from mllkm_scale.base.files.archive import archive_checksum, read_archive, write_archive
from mllkm_scale.errors import CheckpointError, ModelFileError, ParameterError, ScratchError

HEADER = {"n": 3, "gap": 0.1, "name": "état", "nested": {"list": [1, None, True]}}
ARRAYS = {
    "x": np.arange(6.0).reshape(2, 3),
    "flags": np.array([True, False]),
    "labels": np.array(["a", "état"]),
    "empty": np.empty((0, 4), np.float32),
    "scalar": np.array(7, np.int64),
}


def write(path, header=HEADER, arrays=ARRAYS, kind="test", version=2):
    write_archive(path, kind=kind, version=version, header=header, arrays=arrays)
    return path


def read(path, kind="test", version=2, error=ModelFileError):
    return read_archive(path, kind=kind, version=version, error=error)


def assert_same(found, header, arrays):
    assert found[0] == header
    assert sorted(found[1]) == sorted(arrays)
    for name, values in arrays.items():
        assert found[1][name].dtype == values.dtype
        assert found[1][name].shape == values.shape
        assert found[1][name].tobytes() == values.tobytes()


def refusal(path, **options):
    with pytest.raises(ModelFileError) as caught:
        read(path, **options)
    message = str(caught.value)
    assert "\n" not in message
    assert str(path) in message
    return message


def test_what_was_written_is_read(tmp_path):
    assert_same(read(write(tmp_path / "a")), HEADER, ARRAYS)


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)
dtypes = st.one_of(
    npst.boolean_dtypes(),
    npst.integer_dtypes(endianness="?"),
    npst.unsigned_integer_dtypes(),
    npst.floating_dtypes(sizes=(16, 32, 64), endianness="?"),
    npst.unicode_string_dtypes(max_len=4),
    npst.byte_string_dtypes(max_len=4),
)
array_maps = st.dictionaries(
    st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,5}", fullmatch=True),
    dtypes.flatmap(lambda dtype: npst.arrays(dtype, npst.array_shapes(min_dims=0, max_dims=3, min_side=0))),
    max_size=3,
)


@settings(max_examples=30, deadline=None)
@given(header=st.dictionaries(st.text(max_size=3), values, max_size=3), arrays=array_maps)
def test_any_header_and_any_plain_arrays_come_back(header, arrays):
    with tempfile.TemporaryDirectory() as folder:
        path = write(Path(folder, "a"), header, arrays)
        first = path.read_bytes()
        found = read(path)
        assert_same(found, header, arrays)
        assert write(path, *found).read_bytes() == first


def test_numbers_that_are_not_finite_come_back(tmp_path):
    header, _ = read(write(tmp_path / "a", {"gap": float("inf"), "seen": float("nan")}))
    assert header["gap"] == float("inf")
    assert np.isnan(header["seen"])


def test_keys_that_are_numbers_become_text_and_tuples_lists(tmp_path):
    header, _ = read(write(tmp_path / "a", {"rounds": {10: (1, 2), 9: ()}}))
    assert header == {"rounds": {"10": [1, 2], "9": []}}


def test_equal_contents_give_equal_bytes_whatever_their_order_and_layout(tmp_path):
    first = write(tmp_path / "a").read_bytes()
    header = dict(reversed(HEADER.items()))
    arrays = {name: np.asfortranarray(ARRAYS[name]) for name in reversed(ARRAYS)}
    arrays["scalar"] = ARRAYS["scalar"]
    assert write(tmp_path / "b", header, arrays).read_bytes() == first


def test_the_checksum_is_the_one_of_the_file_and_changes_with_everything_but_the_package(tmp_path):
    def checksum(header=HEADER, arrays=ARRAYS, kind="test", version=2):
        return archive_checksum(kind=kind, version=version, header=header, arrays=arrays)

    with zipfile.ZipFile(write(tmp_path / "a")) as archive:
        envelope = json.loads(archive.read("header.json"))
    assert envelope["sha256"] == checksum()
    assert envelope["package"] == __version__
    x = ARRAYS["x"]
    others = [
        checksum(header=HEADER | {"n": 4}),
        checksum(kind="other"),
        checksum(version=1),
        checksum(arrays=ARRAYS | {"x": x.reshape(3, 2)}),
        checksum(arrays=ARRAYS | {"x": x.view(np.int64)}),
        checksum(arrays=ARRAYS | {"x": np.nextafter(x, 9.0)}),
        checksum(arrays=ARRAYS | {"y": x}),
        checksum(arrays={("z" if name == "x" else name): values for name, values in ARRAYS.items()}),
    ]
    assert len({checksum(), *others}) == 1 + len(others)


def test_numpy_reads_the_arrays_too(tmp_path):
    with np.load(write(tmp_path / "a.npz"), allow_pickle=False) as arrays:
        np.testing.assert_array_equal(arrays["x"], ARRAYS["x"])


def test_every_flipped_bit_is_noticed_or_harmless(tmp_path):
    path = write(tmp_path / "a")
    intact = path.read_bytes()
    noticed = 0
    for bit in np.random.default_rng(0).choice(8 * len(intact), 1000, replace=False).tolist():
        damaged = bytearray(intact)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        try:
            found = read(path)
        except ModelFileError:
            noticed += 1
        else:
            assert_same(found, HEADER, ARRAYS)
    assert noticed > 600


def test_every_truncation_is_noticed(tmp_path):
    path = write(tmp_path / "a")
    intact = path.read_bytes()
    for size in range(0, len(intact), 7):
        path.write_bytes(intact[:size])
        assert "damaged" in refusal(path)


def test_bytes_swapped_between_two_files_are_noticed(tmp_path):
    x = np.random.default_rng(0).normal(size=1000)
    first, second = write(tmp_path / "a", arrays={"x": x}), write(tmp_path / "b", arrays={"x": x + 1})
    with (
        zipfile.ZipFile(first) as one,
        zipfile.ZipFile(second) as other,
        zipfile.ZipFile(tmp_path / "c", "w") as mix,
    ):
        mix.writestr("header.json", one.read("header.json"))
        mix.writestr("x.npy", other.read("x.npy"))
    assert "checksum differs" in refusal(tmp_path / "c")


def test_a_missing_file_is_named(tmp_path):
    assert "does not exist: check the path" in refusal(tmp_path / "a")


def test_a_folder_is_no_file(tmp_path):
    assert "cannot be read (Is a directory)" in refusal(tmp_path)


@pytest.mark.parametrize("content", [b"", b"no archive", b"PK\x05\x06" + bytes(18)])
def test_a_file_of_another_format_is_refused(tmp_path, content):
    (tmp_path / "a").write_bytes(content)
    assert "no file of kind 'test'" in refusal(tmp_path / "a")


def test_an_npz_file_of_numpy_is_refused(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.eye(2))
    assert "header.json" in refusal(tmp_path / "a.npz")


def test_another_kind_is_refused_with_both_names(tmp_path):
    message = refusal(write(tmp_path / "a"), kind="other")
    assert message.endswith("is a file of kind 'test': give one of kind 'other'")


def test_a_newer_version_asks_for_an_upgrade_and_an_older_one_is_read(tmp_path):
    path = write(tmp_path / "a", version=2)
    message = refusal(path, version=1)
    assert "written by version 2 of the format; this package reads up to 1: upgrade mllkm-scale" in message
    assert_same(read(path, version=3), HEADER, ARRAYS)


def test_the_caller_chooses_the_error(tmp_path):
    with pytest.raises(CheckpointError, match="does not exist"):
        read(tmp_path / "a", error=CheckpointError)


class Bomb:
    def __reduce__(self):
        return os.abort, ()


def forged(path, member, packing=zipfile.ZIP_STORED, name="x.npy"):
    """A file with an intact header and one forged member."""
    write(path, arrays={})
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr(name, member, packing)
    return path


def npy(values):
    with tempfile.TemporaryFile() as file:
        np.save(file, values, allow_pickle=True)
        file.seek(0)
        return file.read()


def test_objects_in_a_file_are_refused_and_never_loaded(tmp_path):
    assert "no plain array" in refusal(forged(tmp_path / "a", npy(np.array([Bomb()], dtype=object))))


def test_a_size_that_the_file_cannot_hold_is_not_believed(tmp_path):
    huge = npy(np.zeros(10**6)).replace(b"(1000000,)", b"(9999999999999,)")[:200]
    assert "another size" in refusal(forged(tmp_path / "a", huge.replace(b"   \n", b"\n")))
    packed = forged(tmp_path / "b", npy(np.zeros(10**6)), zipfile.ZIP_DEFLATED)
    assert "packed" in refusal(packed)


def test_two_members_of_one_name_are_refused(tmp_path):
    path = forged(tmp_path / "a", npy(np.eye(2)))
    with zipfile.ZipFile(path, "a") as archive, pytest.warns(UserWarning, match="Duplicate"):
        archive.writestr("x.npy", npy(np.ones(2)))
    assert "two members of one name" in refusal(path)


@pytest.mark.parametrize(
    "values",
    [np.array([1, "a"], dtype=object), np.zeros(2, "f8,i4"), np.zeros(2, "M8[s]"), np.zeros(2, complex)],
)
def test_arrays_that_are_not_plain_are_refused_before_writing(tmp_path, values):
    with pytest.raises(ParameterError, match="'x' of a test file has type"):
        write(tmp_path / "a", arrays={"x": values})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["", "../x", "a/b", "é", ".x"])
def test_names_that_could_leave_the_archive_are_refused(tmp_path, name):
    with pytest.raises(ParameterError, match="cannot name an array"):
        write(tmp_path / "a", arrays={name: np.zeros(1)})


def test_a_header_that_is_no_json_is_refused(tmp_path):
    with pytest.raises(ParameterError, match="JSON"):
        write(tmp_path / "a", header={"x": np.eye(2)})


@pytest.mark.parametrize("failure", [OSError(28, "No space left on device"), KeyboardInterrupt()])
@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_after_a_failure_the_old_file_stands_and_nothing_else(tmp_path, monkeypatch, failure, step):
    path = write(tmp_path / "a")
    before = path.read_bytes()

    def fail(*arguments):
        raise failure

    with monkeypatch.context() as patch:
        patch.setattr(*((os, "fsync") if step == "fsync" else (Path, "replace")), fail)
        with pytest.raises(ScratchError if isinstance(failure, OSError) else KeyboardInterrupt) as caught:
            write(path, header={"n": 4})
    if isinstance(failure, OSError):
        assert str(caught.value) == (
            f"{path} cannot be written (No space left on device): free space or choose another folder"
        )
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


FULL_DISK = """
import resource, sys
import numpy as np
from mllkm_scale.errors import ScratchError
from mllkm_scale.base.files.archive import write_archive
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
try:
    write_archive(sys.argv[1], kind="test", version=1, header={}, arrays={"x": np.zeros(50_000)})
except ScratchError as error:
    sys.stdout.write(str(error))
"""


def test_a_disk_that_fills_up_is_reported_and_nothing_is_left(tmp_path):
    run = subprocess.run(
        [sys.executable, "-c", FULL_DISK, str(tmp_path / "a")],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "cannot be written (File too large)" in run.stdout, run.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_does_not_exist_is_named(tmp_path):
    with pytest.raises(ScratchError, match=r"missing/a cannot be written \(No such file or directory\)"):
        write(tmp_path / "missing" / "a")
