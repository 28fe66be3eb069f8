"""Disks: room and speed where temporary files and results go, and of a data file.

What is written is a file without a name, so that nothing stays, however the program ends.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from mllkm_scale.doctor.findings import Finding
from mllkm_scale.units import format_bytes

__all__ = ["check_data", "check_folders", "file_system", "read_bytes_per_s", "write_and_read_bytes_per_s"]

BLOCK_BYTES = 4 * 2**20
MOST_BYTES = 128 * 2**20
MOST_FILES = 100
MOST_S = 1.0
SLOW_BYTES_PER_S = 30e6
IN_MEMORY = ("tmpfs", "ramfs")


def check_folders(scratch_dir: Path, budget_bytes: int) -> Iterator[Finding]:
    """The folder of temporary files, and the current one, where it is on another disk."""
    here = Path.cwd()
    yield _folder("scratch folder", scratch_dir, budget_bytes)
    if not scratch_dir.exists() or here.stat().st_dev != scratch_dir.stat().st_dev:
        yield _folder("current folder", here, 0)


def _folder(subject: str, folder: Path, wanted_bytes: int) -> Finding:
    another = "name another one with scratch-dir" if subject == "scratch folder" else "work in another one"
    try:
        free_bytes = shutil.disk_usage(folder).free
        written, read = write_and_read_bytes_per_s(folder, min(MOST_BYTES, free_bytes // 10))
    except OSError as error:
        return Finding(subject, "problem", f"{folder} cannot be written ({error.strerror or error})", another)
    kind = file_system(folder)
    speeds = f"writes {format_bytes(written)}/s, reads {format_bytes(read)}/s"
    text = f"{folder} ({kind or 'unknown file system'}), {format_bytes(free_bytes)} free, {speeds}"
    if kind in IN_MEMORY:
        return Finding(subject, "warning", f"{text}; it is in memory, which a budget does not see", another)
    if free_bytes < wanted_bytes:
        text += ", which files of a training may fill"
        return Finding(subject, "warning", text, f"free space, or {another}")
    if min(written, read) < SLOW_BYTES_PER_S:
        return Finding(subject, "warning", f"{text}, which is slow", f"{another}, on a disk of this machine")
    return Finding(subject, "ok", text)


def check_data(path: Path) -> Iterator[Finding]:
    """How fast a file, or the files of a folder such as a zarr group, can be read."""
    if not path.exists():
        yield Finding("data", "problem", f"{path} does not exist", "check the path")
        return
    files = [path] if path.is_file() else sorted(file for file in path.rglob("*") if file.is_file())
    size_bytes = sum(file.stat().st_size for file in files)
    try:
        speed = read_bytes_per_s(files)
    except OSError as error:
        yield Finding("data", "problem", f"{path} cannot be read ({error.strerror})", "change its permissions")
        return
    text = f"{path}, {format_bytes(size_bytes)}, read at {format_bytes(speed)}/s"
    if size_bytes > BLOCK_BYTES and speed < SLOW_BYTES_PER_S:
        yield Finding("data", "warning", f"{text}, which is slow", "copy it to a disk of this machine")
    else:
        yield Finding("data", "ok", text)


def write_and_read_bytes_per_s(folder: Path, size_bytes: int) -> tuple[float, float]:
    """Speeds of writing to the disk and reading from it, by a file of so many bytes or as many as a second allows."""
    block = os.urandom(BLOCK_BYTES)  # disks that pack what they store would be faster with zeros
    with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
        begun_s, written = time.perf_counter(), 0
        while written < max(size_bytes, BLOCK_BYTES) and time.perf_counter() - begun_s < MOST_S:
            written += file.write(block)
        os.fsync(file.fileno())
        write_s = time.perf_counter() - begun_s
        file.seek(0)
        return written / write_s, _read_bytes_per_s([file.fileno()])


def read_bytes_per_s(files: list[Path]) -> float:
    """Speed of reading files from the disk; of large ones, the beginning."""
    with ExitStack() as stack:
        opened = [stack.enter_context(file.open("rb", buffering=0)) for file in files[:MOST_FILES]]
        return _read_bytes_per_s([file.fileno() for file in opened])


def _read_bytes_per_s(descriptors: list[int]) -> float:
    if hasattr(os, "posix_fadvise"):  # out of the system's memory, or the disk would not be seen
        for descriptor in descriptors:
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    begun_s, read = time.perf_counter(), 0
    for descriptor in descriptors:
        while block := os.read(descriptor, BLOCK_BYTES):
            read += len(block)
            if read >= MOST_BYTES or time.perf_counter() - begun_s > MOST_S:
                return read / (time.perf_counter() - begun_s)
    return read / max(time.perf_counter() - begun_s, 1e-9)


def file_system(folder: Path) -> str | None:
    """The kind of file system that a folder is on, such as ext4, nfs or tmpfs."""
    import psutil

    place = folder.resolve()
    mounts = [part for part in psutil.disk_partitions(all=True) if place.is_relative_to(part.mountpoint)]
    return str(max(mounts, key=lambda part: len(part.mountpoint)).fstype) if mounts else None
