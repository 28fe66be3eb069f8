"""Archive files: plain arrays and a JSON header under one checksum, written completely or not at all.

Model files and checkpoints are archive files. An archive file is an uncompressed NPZ archive, whose arrays
`numpy.load` reads too:

    header.json   kind, version of the format, version of the package, header, sha256
    <name>.npy    an array

The sha256 covers kind, version and header, and the name, type, shape and bytes of every array, in the order of
the names. It does not cover the version of the package, so equal contents have equal checksums. Equal contents
written by one version of the package have equal bytes: the archive holds no times.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import os
import re
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Annotated, Any

import msgspec
import numpy as np

from mllkm_scale.base.arrays import Array
from mllkm_scale.base.files.regular import open_regular
from mllkm_scale.base.files.whole import cannot_write, whole_file
from mllkm_scale.base.schemas import conform, parse_json
from mllkm_scale.base.version import __version__
from mllkm_scale.errors import MLLKMError, ParameterError

__all__ = ["archive_checksum", "read_archive", "write_archive"]


HEADER = "header.json"
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the earliest time that an archive can hold
_READ_BYTES = 2**22
_LAST_POINT = 0x10FFFF  # of Unicode


class _Seal(msgspec.Struct):
    """What header.json holds."""

    kind: Annotated[str, msgspec.Meta(max_length=64, pattern=r"^[A-Za-z0-9_-]+\Z")]
    version: Annotated[int, msgspec.Meta(ge=1, le=10**6)]
    header: dict[str, Any]
    sha256: Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{64}\Z")]


def write_archive(
    path: str | os.PathLike[str],
    *,
    kind: str,
    version: int,
    header: Mapping[str, Any],
    arrays: Mapping[str, Array],
) -> None:
    """Write an archive file. After any failure, the previous file at `path` is unchanged.

    Parameters
    ----------
    path : path
        The folder must exist; an existing file is replaced.
    kind : str
        The kind of the file, such as ``"mllkm-model"``.
    version : int
        Version of the format of this kind, from 1.
    header : mapping
        Values that JSON can hold, and also NaN and infinity.
    arrays : mapping
        Arrays of numbers, booleans or text by name.

    Raises
    ------
    ParameterError
        If JSON cannot hold the header, or an array holds objects.
    ScratchError
        If the file cannot be written.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_archive(f"{folder}/a", kind="example", version=1, header={"n": 2}, arrays={"x": np.eye(2)})
    ...     header, arrays = read_archive(f"{folder}/a", kind="example", version=1, error=MLLKMError)
    >>> header, arrays["x"].tolist()
    ({'n': 2}, [[1.0, 0.0], [0.0, 1.0]])
    """
    target = Path(path)
    plain_header, plain_arrays = _plain_header(kind, header), _plain_arrays(kind, arrays)
    envelope = {
        "kind": kind,
        "version": version,
        "package": __version__,
        "header": plain_header,
        "sha256": _checksum(kind, version, plain_header, plain_arrays),
    }
    try:
        with whole_file(target) as file:
            _write_archive(file, envelope, plain_arrays)
    except OSError as error:
        raise cannot_write(target, error) from error


def read_archive(
    path: str | os.PathLike[str], *, kind: str, version: int, error: type[MLLKMError]
) -> tuple[dict[str, Any], dict[str, Array]]:
    """Read the header and the arrays of an archive file, exactly as they were written.

    Parameters
    ----------
    path : path
    kind : str
        The required kind of the file.
    version : int
        The newest version of the format that the caller can read.
    error : type of MLLKMError
        The error to raise if the file is missing, damaged, of another kind or of a newer version.
    """
    source = Path(path)
    try:
        with open_regular(source, error) as file, zipfile.ZipFile(file) as archive:
            _require_intact(archive, os.fstat(file.fileno()).st_size)
            envelope = parse_json(archive.read(HEADER))
            seal = conform(envelope, _Seal)
            found, written, header = seal.kind, seal.version, seal.header
            if found != kind:
                raise error(f"{source} is a file of kind {found!r}: give one of kind {kind!r}")
            if written > version:
                raise error(
                    f"{source} was written by version {written} of the format; this package reads up to"
                    f" {version}: upgrade mllkm-scale"
                )
            arrays = {
                member.filename.removesuffix(".npy"): _read_array(archive, member)
                for member in archive.infolist()
                if member.filename != HEADER
            }
            if _checksum(kind, written, header, arrays) != seal.sha256:
                raise ValueError("the checksum differs")
            return header, arrays
    except (MLLKMError, MemoryError):
        raise
    except FileNotFoundError as failure:
        raise error(f"{source} does not exist: check the path") from failure
    except Exception as failure:  # Whatever damage makes zipfile, json or numpy raise, the remedy is the same.
        reason = " ".join(str(failure).split()) or type(failure).__name__
        if isinstance(failure, OSError) and failure.strerror:
            raise error(
                f"{source} cannot be read ({failure.strerror}): check the path and its permissions"
            ) from failure
        raise error(
            f"{source} is damaged or no file of kind {kind!r} ({reason}): name another file, or copy it again, or"
            " make it again"
        ) from failure


def archive_checksum(*, kind: str, version: int, header: Mapping[str, Any], arrays: Mapping[str, Array]) -> str:
    """The sha256 of an archive file with these contents, in hexadecimal digits."""
    return _checksum(kind, version, _plain_header(kind, header), _plain_arrays(kind, arrays))


def _plain_header(kind: str, header: Mapping[str, Any]) -> Any:
    # As it will be read: keys that become text and tuples that become lists would change the checksum.
    try:
        return json.loads(json.dumps(dict(header)))
    except (TypeError, ValueError, RecursionError) as error:
        raise ParameterError(
            f"the header of a {kind} file holds what JSON cannot ({error}): give plain values"
        ) from error


def _plain_arrays(kind: str, arrays: Mapping[str, Array]) -> dict[str, Array]:
    plain = {}
    for name in sorted(arrays):
        values = np.asarray(arrays[name])
        if _NAME.fullmatch(name) is None:
            raise ParameterError(f"{name!r} cannot name an array of a {kind} file: use letters and digits")
        if not _is_plain(values.dtype):
            raise ParameterError(
                f"the array {name!r} of a {kind} file has type {values.dtype}: give numbers, booleans or text"
            )
        try:
            plain[name] = _require_text(values, name)
        except ValueError as error:
            raise ParameterError(f"a {kind} file cannot be written: {error}; give text in Unicode") from None
    return plain


def _is_plain(dtype: np.dtype[Any]) -> bool:
    return dtype.kind in "biufSU" and dtype.itemsize > 0


def _raw(values: Array) -> Array:
    """The bytes of an array in C order, without a copy if the array is contiguous."""
    return np.ascontiguousarray(values).reshape(-1).view(np.uint8)


def _checksum(kind: str, version: int, header: Any, arrays: Mapping[str, Array]) -> str:
    names = sorted(arrays)
    layout = [[name, arrays[name].dtype.str, list(arrays[name].shape)] for name in names]
    preamble = json.dumps([kind, version, header, layout], sort_keys=True, separators=(",", ":"))
    digest = hashlib.sha256(preamble.encode("ascii"))
    for name in names:
        digest.update(_raw(arrays[name]).data)
    return digest.hexdigest()


def _write_archive(file: IO[bytes], envelope: dict[str, Any], arrays: Mapping[str, Array]) -> None:
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        text = json.dumps(envelope, sort_keys=True, indent=1).encode("ascii")
        _write_member(archive, HEADER, text, np.empty(0, np.uint8))
        for name in sorted(arrays):
            values = arrays[name]
            preamble = io.BytesIO()
            layout = {"descr": values.dtype.str, "fortran_order": False, "shape": values.shape}
            np.lib.format.write_array_header_1_0(preamble, layout)
            _write_member(archive, f"{name}.npy", preamble.getvalue(), _raw(values))


def _write_member(archive: zipfile.ZipFile, name: str, preamble: bytes, content: Array) -> None:
    info = zipfile.ZipInfo(name, date_time=_EPOCH)
    info.create_system = 3
    info.external_attr = 0o644 << 16
    info.file_size = len(preamble) + content.nbytes  # stated beforehand, so that more than 2 GB can follow
    with archive.open(info, "w") as stream:
        stream.write(preamble)
        stream.write(content.data)


def _require_intact(archive: zipfile.ZipFile, size_bytes: int) -> None:
    """Refuse a file that `write_archive` did not write, before trusting any size in the archive."""
    members = archive.infolist()
    names = [member.filename for member in members]
    if len(set(names)) < len(names):
        raise ValueError("it holds two members of one name")
    if any(member.compress_type != zipfile.ZIP_STORED or member.file_size > size_bytes for member in members):
        raise ValueError("it holds members that are packed or larger than the file")
    if any(name != HEADER and _NAME.fullmatch(name.removesuffix(".npy")) is None for name in names):
        raise ValueError("it holds members with names that no array has")
    if sum(member.file_size for member in members) > size_bytes:
        raise ValueError("its members overlap")
    broken = archive.testzip()
    if broken is not None:
        raise ValueError(f"the member {broken} is not intact")


def _read_array(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> Array:
    with archive.open(member) as stream:
        if not member.filename.endswith(".npy") or np.lib.format.read_magic(stream) != (1, 0):
            raise ValueError(f"the member {member.filename} is no array")
        shape, by_columns, dtype = np.lib.format.read_array_header_1_0(stream)
        if not _is_plain(dtype) or by_columns or any(size < 0 for size in shape):
            raise ValueError(f"the member {member.filename} is no plain array")
        if math.prod(shape) * dtype.itemsize != member.file_size - stream.tell():
            raise ValueError(f"the member {member.filename} has another size than its header says")
        values = np.empty(shape, dtype)
        raw = values.reshape(-1).view(np.uint8)
        for start in range(0, len(raw), _READ_BYTES):
            raw[start : start + _READ_BYTES] = np.frombuffer(stream.read(_READ_BYTES), np.uint8)
        return _require_text(values, member.filename)


def _require_text(values: Array, name: str) -> Array:
    """Refuse invalid code points, which NumPy accepts until they are read."""
    if values.dtype.kind == "U" and values.size:
        points = values.reshape(-1).view(values.dtype.byteorder + "u4" if values.dtype.byteorder in "<>" else "u4")
        if int(points.max()) > _LAST_POINT or bool(((points >= 0xD800) & (points <= 0xDFFF)).any()):
            raise ValueError(f"the array {name} holds text that is no Unicode")
    return values
