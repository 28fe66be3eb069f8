"""A dask cluster: whether it is reached, has the versions of this machine, and sees its files; within bounded time."""

from __future__ import annotations

import importlib.metadata
import os
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from mllkm_scale import __version__
from mllkm_scale.doctor.findings import Finding
from mllkm_scale.errors import ClusterError
from mllkm_scale.team import n_threads

if TYPE_CHECKING:
    from mllkm_scale.cluster import Client
    from mllkm_scale.cluster.spec import ClusterSpec

__all__ = ["check_cluster"]

Result = TypeVar("Result")
LISTED = 3
SAME = ("python", "numpy", "numba", "distributed")  # bits, or messages, depend on these


def check_cluster(spec: ClusterSpec, timeout_s: float) -> Iterator[Finding]:
    """Reach a cluster that runs already; of one that would be started it is only said whether it would fit."""
    if spec.kind in ("none", "slurm"):
        return
    if spec.kind == "local":
        workers, cores = spec.workers or 0, n_threads(-1)
        text = f"{workers} workers would be started on this machine, which has {cores} cores"
        if workers * spec.threads_per_worker > cores:
            yield Finding("cluster", "warning", text, f"set workers to {cores} or fewer")
        else:
            yield Finding("cluster", "ok", text)
        return
    from mllkm_scale.cluster import describe, open_client
    from mllkm_scale.cluster.settings import silence

    try:
        with silence(), open_client(spec, memory_budget=1, timeout_s=timeout_s) as client:
            assert client is not None
            yield Finding("cluster", "ok", _within(timeout_s, lambda: describe(client)))
            yield _versions(client, timeout_s)
            yield _files(client, timeout_s)
    except ClusterError as error:
        text, _, remedy = str(error).partition(": ")
        yield Finding("cluster", "problem", text, remedy)
    except TimeoutError:
        text = f"the workers do not answer within {timeout_s:.0f} s"
        yield Finding("cluster", "problem", text, "look at their output, and whether they are busy")


def _versions(client: Client, timeout_s: float) -> Finding:
    """Whether workers have this package, and the libraries that results and messages depend on, as they are here."""
    differ: list[str] = []
    told: Any = _within(timeout_s, lambda: client.get_versions(check=False))
    ours = _numbers(told["client"])
    for address, worker in told["workers"].items():
        theirs = _numbers(worker)
        differ += [
            f"{name} {theirs.get(name)} on {address}, {ours[name]} here"
            for name in SAME
            if theirs.get(name) != ours.get(name)
        ]
    packages = _within(
        timeout_s, lambda: client.run(importlib.metadata.version, "mllkm-scale", on_error="return", nanny=False)
    )
    for address, found in packages.items():
        if found != __version__:
            number = found if isinstance(found, str) else "is missing"
            differ.append(f"mllkm-scale {number} on {address}, {__version__} here")
    if not differ:
        return Finding("versions of workers", "ok", "as here")
    more = f", and {len(differ) - LISTED} more" if len(differ) > LISTED else ""
    text = "; ".join(differ[:LISTED]) + more
    level: Any = "problem" if any(word.startswith("mllkm-scale") for word in differ) else "warning"
    return Finding("versions of workers", level, text, "start the workers from the same environment")


def _numbers(told: dict[str, Any]) -> dict[str, Any]:
    """Version of each package; Python's without what it was built with."""
    return told["packages"] | {"python": str(told["packages"].get("python", "")).rsplit(".", 1)[0]}


def _files(client: Client, timeout_s: float) -> Finding:
    """Whether workers see a file that this process makes in the current folder."""
    here = Path.cwd()
    try:
        with tempfile.NamedTemporaryFile(dir=here, prefix=".mllkm-doctor-") as mark:
            seen = _within(timeout_s, lambda: client.run(os.path.exists, mark.name))
    except PermissionError:
        seen = _within(timeout_s, lambda: client.run(os.path.isdir, str(here)))
    blind = [address for address, found in seen.items() if not found]
    if not blind:
        return Finding("files of workers", "ok", f"all see {here}")
    remedy = "keep data and run folder where all machines see them under one path"
    return Finding("files of workers", "warning", f"{len(blind)} of {len(seen)} workers do not see {here}", remedy)


def _within(timeout_s: float, ask: Callable[[], Result]) -> Result:
    """What a call gives, if it ends in time; dask's own calls wait for a worker for ever."""
    results: list[Result] = []
    errors: list[BaseException] = []

    def call() -> None:
        try:
            results.append(ask())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    thread.join(timeout_s)
    if errors:
        raise errors[0]
    if not results:
        raise TimeoutError
    return results[0]
