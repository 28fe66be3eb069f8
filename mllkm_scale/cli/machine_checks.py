"""The checks of `mllkm doctor`: problems that would slow or stop a training run on a machine.

A check yields findings. It is bounded in time and leaves no files behind.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np
import psutil

from mllkm_scale.base.threads import Threads, n_threads, one_blas_thread
from mllkm_scale.base.units import format_bytes
from mllkm_scale.base.version import __version__
from mllkm_scale.cluster.client import memory_limit
from mllkm_scale.errors import ClusterError, ParameterError

if TYPE_CHECKING:
    from mllkm_scale.cluster import Client
    from mllkm_scale.run.job.cluster import ClusterSpec

__all__ = ["LEVELS", "Checkup", "Finding", "examine"]

Level = Literal["ok", "warning", "problem"]
Result = TypeVar("Result")
LEVELS: tuple[Level, ...] = ("ok", "warning", "problem")

LIBRARIES = ("numpy", "scipy", "numba", "scikit-learn", "h5py", "zarr", "pyarrow", "dask", "distributed")
EXTRAS = {
    "onnx": ("onnx", "export to ONNX"),
    "bokeh": ("dashboard", "dask's dashboard and performance report"),
    "dask-jobqueue": ("slurm", "SLURM clusters"),
}
SAME_ON_WORKERS = ("python", "numpy", "numba", "distributed")  # results or messages depend on these
LISTED = 3
BUDGET_SHARE = 0.7  # of the available memory; the rest is for the system and other programs
BUDGET_STEP_BYTES = 10**8
SIDE = 512
TIMED_S = 0.25
SLOW_GFLOPS = 1.0  # on one thread: a BLAS for the processor is ten times as fast
POOR_GAIN = 0.5  # of perfect scaling over threads
BLOCK_BYTES = 4 * 2**20
MOST_BYTES = 128 * 2**20
MOST_FILES = 100
MOST_S = 1.0
SLOW_BYTES_PER_S = 30e6


@dataclass(frozen=True)
class Finding:
    """The subject of a check, its state, and the remedy if it is a warning or a problem.

    >>> Finding("disk", "warning", "1.0 GB free", "free some space").in_words
    '1.0 GB free: free some space'
    """

    subject: str
    level: Level
    text: str
    remedy: str = ""

    @property
    def in_words(self) -> str:
        """What was found, and the remedy."""
        return f"{self.text}: {self.remedy}" if self.remedy else self.text


Check = Callable[[], Iterable[Finding]]


@dataclass(frozen=True)
class Checkup:
    """What to check besides the machine itself.

    `scratch_dir` is the folder for temporary files; `budget_bytes` and `n_jobs` are the memory and the threads of a
    training run. Reading `data` is timed, and `cluster` must answer within `timeout_s`.
    """

    scratch_dir: Path
    budget_bytes: int
    n_jobs: int
    data: Path | None = None
    cluster: ClusterSpec | None = None
    timeout_s: float = 3.0

    def checks(self) -> dict[str, Check]:
        """Every check by its subject."""
        found: dict[str, Check] = {
            "versions": check_versions,
            "cores": partial(check_cores, self.n_jobs),
            "memory": partial(check_memory, self.budget_bytes),
            "BLAS": check_blas,
            "products": check_products,
            "compiled code": check_numba_cache,
            "disk": partial(check_folders, self.scratch_dir, self.budget_bytes),
            "extras": check_extras,
            "configuration": check_configuration,
        }
        found |= {} if self.data is None else {"data": partial(check_data, self.data)}
        found |= {} if self.cluster is None else {"cluster": partial(check_cluster, self.cluster, self.timeout_s)}
        return found


def examine(checkup: Checkup, progress: Callable[[int, int], None] | None = None) -> list[Finding]:
    """Run all checks; an exception in one is a finding, and the others continue.

    After each check, ``progress(done, total)`` is called.

    >>> findings = examine(Checkup(Path(tempfile.gettempdir()), 10**9, n_jobs=1))
    >>> {finding.level for finding in findings} <= {"ok", "warning", "problem"}
    True
    """
    findings: list[Finding] = []
    checks = checkup.checks()
    for number, (subject, check) in enumerate(checks.items(), 1):
        try:
            findings += check()
        except Exception as error:  # the doctor is for machines on which something is broken
            why = " ".join(f"{type(error).__name__}: {error}".split())
            findings.append(Finding(subject, "problem", f"cannot be checked ({why})", "correct this first"))
        if progress is not None:
            progress(number, len(checks))
    return findings


def _judged(subject: str, text: str, *warnings: tuple[bool, str]) -> Finding:
    """A warning with the first remedy that applies; otherwise the level is ok."""
    remedy = next((remedy for needed, remedy in warnings if needed), "")
    return Finding(subject, "warning" if remedy else "ok", text, remedy)


def check_versions() -> Iterator[Finding]:
    """The package, Python and the system; then the libraries."""
    system = f"{platform.system()} {platform.machine()}"
    yield Finding("versions", "ok", f"mllkm-scale {__version__}, Python {platform.python_version()}, {system}")
    found = {name: _version(name) for name in LIBRARIES}
    yield Finding("libraries", "ok", ", ".join(f"{name} {number}" for name, number in found.items() if number))
    for name in (name for name, number in found.items() if number is None):
        yield Finding("libraries", "problem", f"{name} is not installed", f"pip install {name}")


def check_extras() -> Iterator[Finding]:
    """Optional packages."""
    for name, (extra, purpose) in EXTRAS.items():
        missing = f'not installed; for {purpose}: pip install "mllkm-scale[{extra}]"'
        yield Finding(name, "ok", _version(name) or missing)


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def check_configuration() -> Iterator[Finding]:
    """The configuration of the user."""
    from mllkm_scale.config import Origin, in_force

    try:
        found = [setting for setting in in_force() if setting.origin != Origin.BUILT_IN]
    except ParameterError as error:
        text, _, remedy = str(error).rpartition(": ")
        yield Finding("configuration", "problem", text, remedy)
        return
    told = [f"{setting.key} {setting.value} ({setting.place})" for setting in found]
    for text in told or ["nothing is set; all defaults are the built-in ones"]:
        yield Finding("configuration", "ok", text)


def check_numba_cache() -> Iterator[Finding]:
    """Whether compiled functions can be cached between starts."""
    # numba uses its configured folder, otherwise that of the source, otherwise the cache of the user.
    told, cache = os.environ.get("NUMBA_CACHE_DIR"), Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    places = [Path(told)] if told else [Path(__file__).parents[1] / "solver" / "__pycache__", cache / "numba"]
    if place := next(filter(_is_writable, places), None):
        yield Finding("compiled code", "ok", f"is kept in {place}")
        return
    remedy = "name a folder that can be written in the environment variable NUMBA_CACHE_DIR"
    yield Finding("compiled code", "warning", f"cannot be kept in {places[0]}, and is compiled at every start", remedy)


def _is_writable(folder: Path) -> bool:
    """Whether files can be created there, or in the nearest existing parent folder."""
    there = next(place for place in (folder, *folder.absolute().parents) if place.exists())
    return os.access(there, os.W_OK)


def check_cores(n_jobs: int) -> Iterator[Finding]:
    """Cores of the machine, those that this process may use, and the threads that it would use."""
    from dask.system import cpu_count

    there, ours, wanted = os.cpu_count() or 1, n_threads(-1), n_threads(n_jobs)
    allowed = min(cpu_count(), ours)  # dask knows the limits of containers, too
    text = f"{there} in the machine"
    text += f", {ours} for this process by its affinity" if ours < there else ""
    text += f", {allowed} by the limit of its container" if allowed < ours else ""
    text += f", {wanted} threads in a training run"
    remedy = f"more only wait for each other; set n-jobs to {allowed}"
    yield _judged("cores", text, (wanted > allowed, remedy))


def check_memory(budget_bytes: int) -> Iterator[Finding]:
    """Total and available memory, and a suggested budget."""
    memory, limit = psutil.virtual_memory(), memory_limit()
    usable = min(int(memory.available), limit)
    text = f"{format_bytes(memory.total)}, {format_bytes(memory.available)} available"
    text += f", limited to {format_bytes(limit)}" if limit < memory.total else ""
    steps = int(BUDGET_SHARE * usable) // BUDGET_STEP_BYTES
    suggested = format_bytes(max(1, steps) * BUDGET_STEP_BYTES)
    budget, lower = format_bytes(budget_bytes), f"set memory-budget to {suggested} or less"
    if budget_bytes <= usable:
        yield Finding("memory", "ok", f"{text}; the memory budget is {budget}, and could be {suggested}")
        return
    beyond = budget_bytes > limit
    remedy = "the system would end a training run that uses it; " if beyond else "end other programs, or "
    text += f", but the memory budget is {budget}"
    yield Finding("memory", "problem" if beyond else "warning", text, remedy + lower)


def check_blas() -> Iterator[Finding]:
    """The BLAS libraries."""
    import scipy.linalg  # noqa: F401 - it brings a library of its own
    from threadpoolctl import threadpool_info

    pools = [pool for pool in threadpool_info() if pool["user_api"] == "blas"]
    if not pools:
        yield Finding("BLAS", "warning", "no library whose threads can be set", "install NumPy from its wheel")
    for text in dict.fromkeys(
        f"{pool['internal_api']} {pool['version']} {pool.get('architecture') or ''}".strip()
        + f", {pool['num_threads']} threads outside of training, 1 a task in it"
        for pool in pools
    ):
        yield Finding("BLAS", "ok", text)


def check_products() -> Iterator[Finding]:
    """Speed of matrix products on one thread, and on all cores; training uses one BLAS thread per task."""
    threads = n_threads(-1)
    one = giga_operations_per_s(1)
    everywhere = one if threads == 1 else giga_operations_per_s(threads)
    text = f"{one:.1f} GFlop/s on 1 thread" + (f", {everywhere:.1f} on {threads}" if threads > 1 else "")
    slow = "install NumPy from its wheel, whose BLAS fits the processor"
    busy = "the cores are busy or share their units; end other programs, or lower n-jobs"
    yield _judged("products", text, (one < SLOW_GFLOPS, slow), (everywhere < POOR_GAIN * threads * one, busy))


def giga_operations_per_s(size: int) -> float:
    """GFlop/s of matrix products that run in several threads."""
    factors = np.random.default_rng(0).random((size, SIDE, SIDE))
    results = np.empty_like(factors)

    def multiply(place: int) -> int:
        end_s, done = time.perf_counter() + TIMED_S, 0
        while time.perf_counter() < end_s:
            np.matmul(factors[place], factors[place], out=results[place])
            done += 1
        return done

    with one_blas_thread(), Threads(size) as threads:
        np.matmul(factors[0], factors[0], out=results[0])
        begun_s = time.perf_counter()
        products = sum(threads.run(multiply, range(size)))
        return 2.0 * SIDE**3 * products / (time.perf_counter() - begun_s) / 1e9


def check_folders(scratch_dir: Path, budget_bytes: int) -> Iterator[Finding]:
    """The folder of temporary files, and the current folder if it is on another disk."""
    here = Path.cwd()
    yield _folder("scratch folder", scratch_dir, budget_bytes, "name another one with scratch-dir")
    if not scratch_dir.exists() or here.stat().st_dev != scratch_dir.stat().st_dev:
        yield _folder("current folder", here, 0, "work in another one")


def _folder(subject: str, folder: Path, wanted_bytes: int, another: str) -> Finding:
    try:
        free_bytes = shutil.disk_usage(folder).free
        written, read = write_and_read_bytes_per_s(folder, min(MOST_BYTES, free_bytes // 10))
    except OSError as error:
        return Finding(subject, "problem", f"{folder} cannot be written ({error.strerror or error})", another)
    kind = file_system(folder)
    speeds = f"writes {format_bytes(written)}/s, reads {format_bytes(read)}/s"
    text = f"{folder} ({kind or 'unknown file system'}), {format_bytes(free_bytes)} free, {speeds}"
    if kind in ("tmpfs", "ramfs"):
        return Finding(subject, "warning", f"{text}; it is in memory, which a budget does not see", another)
    if free_bytes < wanted_bytes:
        return Finding(subject, "warning", f"{text}, which a training run may fill", f"free space, or {another}")
    if min(written, read) < SLOW_BYTES_PER_S:
        return Finding(subject, "warning", f"{text}, which is slow", f"{another}, on a disk of this machine")
    return Finding(subject, "ok", text)


def file_system(folder: Path) -> str | None:
    """The type of the file system of a folder, such as ext4, nfs or tmpfs."""
    place = folder.resolve()
    mounts = [part for part in psutil.disk_partitions(all=True) if place.is_relative_to(part.mountpoint)]
    return str(max(mounts, key=lambda part: len(part.mountpoint)).fstype) if mounts else None


def write_and_read_bytes_per_s(folder: Path, size_bytes: int) -> tuple[float, float]:
    """Speeds of writing to disk and reading from it, measured for at most a second."""
    block = os.urandom(BLOCK_BYTES)  # disks with compression would be faster with zeros
    with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
        begun_s, written = time.perf_counter(), 0
        while written < max(size_bytes, BLOCK_BYTES) and time.perf_counter() - begun_s < MOST_S:
            written += file.write(block)
        os.fsync(file.fileno())
        write_s = time.perf_counter() - begun_s
        file.seek(0)
        return written / write_s, _read_bytes_per_s([file.fileno()])


def check_data(path: Path) -> Iterator[Finding]:
    """Speed of reading a file, or the files of a folder such as a zarr group."""
    if not path.exists():
        yield Finding("data", "problem", f"{path} does not exist", "check the path")
        return
    files = [path] if path.is_file() else sorted(file for file in path.rglob("*") if file.is_file())
    size_bytes = sum(file.stat().st_size for file in files)
    try:
        with ExitStack() as stack:
            opened = [stack.enter_context(file.open("rb", buffering=0)) for file in files[:MOST_FILES]]
            speed = _read_bytes_per_s([file.fileno() for file in opened])
    except OSError as error:
        yield Finding("data", "problem", f"{path} cannot be read ({error.strerror})", "change its permissions")
        return
    text = f"{path}, {format_bytes(size_bytes)}, read at {format_bytes(speed)}/s"
    slow = size_bytes > BLOCK_BYTES and speed < SLOW_BYTES_PER_S
    yield _judged("data", text + ", which is slow" * slow, (slow, "copy it to a disk of this machine"))


def _read_bytes_per_s(descriptors: list[int]) -> float:
    if hasattr(os, "posix_fadvise"):  # drop the page cache, so that the disk is measured
        for descriptor in descriptors:
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    begun_s, read = time.perf_counter(), 0
    for descriptor in descriptors:
        while block := os.read(descriptor, BLOCK_BYTES):
            read += len(block)
            if read >= MOST_BYTES or time.perf_counter() - begun_s > MOST_S:
                return read / (time.perf_counter() - begun_s)
    return read / max(time.perf_counter() - begun_s, 1e-9)


def check_cluster(spec: ClusterSpec, timeout_s: float) -> Iterator[Finding]:
    """Connect to a running cluster; for a cluster that would be started, check whether it fits."""
    if spec.kind in ("none", "slurm"):
        return
    if spec.kind == "local":
        workers, cores = spec.workers or 0, n_threads(-1)
        text = f"{workers} workers would be started on this machine, which has {cores} cores"
        yield _judged("cluster", text, (workers * spec.threads_per_worker > cores, f"set workers to {cores} or fewer"))
        return
    from mllkm_scale.cluster import describe, open_client
    from mllkm_scale.cluster.settings import silence

    try:
        with silence(), open_client(spec, memory_budget=1, timeout_s=timeout_s) as client:
            assert client is not None
            yield Finding("cluster", "ok", _within(timeout_s, lambda: describe(client)))
            yield _worker_versions(client, timeout_s)
            yield _worker_files(client, timeout_s)
    except ClusterError as error:
        text, _, remedy = str(error).partition(": ")
        yield Finding("cluster", "problem", text, remedy)
    except TimeoutError:
        text = f"the workers do not answer within {timeout_s:.0f} s"
        yield Finding("cluster", "problem", text, "check their output, and whether they are busy")


def _worker_versions(client: Client, timeout_s: float) -> Finding:
    """Whether workers have the same versions of this package, and of the libraries that results and messages depend
    on."""

    def numbers(told: dict[str, Any]) -> dict[str, Any]:
        # the version of Python without build information
        return told["packages"] | {"python": str(told["packages"].get("python", "")).rsplit(".", 1)[0]}

    told: Any = _within(timeout_s, lambda: client.get_versions(check=False))
    ours = numbers(told["client"])
    differ = [
        f"{name} {theirs.get(name)} on {address}, {ours.get(name)} here"
        for address, theirs in ((address, numbers(worker)) for address, worker in told["workers"].items())
        for name in SAME_ON_WORKERS
        if theirs.get(name) != ours.get(name)
    ]
    ask = partial(client.run, importlib.metadata.version, "mllkm-scale", on_error="return", nanny=False)
    packages = {address: found for address, found in _within(timeout_s, ask).items() if found != __version__}
    for address, found in packages.items():
        number = found if isinstance(found, str) else "is missing"
        differ.append(f"mllkm-scale {number} on {address}, {__version__} here")
    if not differ:
        return Finding("versions of workers", "ok", "as here")
    text = "; ".join(differ[:LISTED]) + (f", and {len(differ) - LISTED} more" if len(differ) > LISTED else "")
    remedy = "start the workers from the same environment"
    return Finding("versions of workers", "problem" if packages else "warning", text, remedy)


def _worker_files(client: Client, timeout_s: float) -> Finding:
    """Whether workers see a file that this process creates in the current folder."""
    here = Path.cwd()
    try:
        with tempfile.NamedTemporaryFile(dir=here, prefix=".mllkm-doctor-") as mark:
            seen = _within(timeout_s, lambda: client.run(os.path.exists, mark.name))
    except PermissionError:
        seen = _within(timeout_s, lambda: client.run(os.path.isdir, str(here)))
    blind = sum(not found for found in seen.values())
    text = f"{blind} of {len(seen)} workers do not see {here}" if blind else f"all see {here}"
    remedy = "keep data and run folder where all machines see them under one path"
    return _judged("files of workers", text, (blind > 0, remedy))


def _within(timeout_s: float, ask: Callable[[], Result]) -> Result:
    """The result of a call within a time limit; calls of dask would wait forever for a worker."""
    answer: Future[Result] = Future()

    def call() -> None:
        try:
            answer.set_result(ask())
        except BaseException as error:
            answer.set_exception(error)

    threading.Thread(target=call, daemon=True).start()
    return answer.result(timeout_s)
