"""A program that forks schedulers, workers and masters, one for every line of JSON on its standard input.

    {"role": "scheduler", "port": ...}
    {"role": "worker", "scheduler": ADDRESS, "memory_limit": ..., "keep": ...}
        "keep"        when it is killed, another one follows
    {"role": "master", "data": ..., "run": ..., "scheduler": ADDRESS, "resume": ..., "settings": {...}}
        "many_tasks"  as the fixture of this name; the default
        "in_memory"   give the rows as arrays
        "file_bytes"  the largest file that it may write, as if the disk were full
        "die"         [where, number]: it kills itself at the checkpoint of this number, "begun" (a part of the file is
                      written), "written" (the file has not yet its name) or "named"
    {"wait": PID, "timeout_s": ...}

The answer is a line, too: {"pid": ...}, or {"exit": ...} with null for a process that lives. All is imported before the
first line is read, so that a process begins at once and a test can afford to kill it. The end of the input ends all.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import json
import os
import resource
import signal
import sys
import time
from pathlib import Path
from typing import Any

import dask
import h5py
from distributed import Client, Scheduler, Worker

import mllkm_scale.cluster.executor
import mllkm_scale.cluster.task
import mllkm_scale.data.grid
from mllkm_scale import Dataset, train
from mllkm_scale.base.files import archive
from mllkm_scale.errors import MLLKMError

LOOPBACK = "127.0.0.1"
PR_SET_PDEATHSIG = 1


def scheduler(job: dict[str, Any]) -> None:
    async def serve() -> None:
        async with Scheduler(
            host=LOOPBACK, port=job["port"], dashboard=False, dashboard_address=f"{LOOPBACK}:0"
        ) as own:
            await own.finished()

    # A worker that hangs is given up after five seconds, which is the least that dask allows.
    with dask.config.set({"distributed.scheduler.worker-ttl": "1s"}):
        asyncio.run(serve())


def worker(job: dict[str, Any]) -> None:
    async def serve() -> None:
        async with Worker(
            job["scheduler"],
            nthreads=1,
            memory_limit=job["memory_limit"],
            host=LOOPBACK,
            local_directory=job["folder"],
            dashboard=False,
            dashboard_address=f"{LOOPBACK}:0",
        ) as own:
            await own.finished()

    while job.get("keep"):
        pid = os.fork()
        if pid == 0:
            end_with_parent()
            break
        os.waitpid(pid, 0)
    asyncio.run(serve())


def master(job: dict[str, Any]) -> None:
    if job.get("many_tasks", True):
        mllkm_scale.data.grid.CHUNK_BYTES = 2**14
        mllkm_scale.cluster.task.TASK_S = 1e-9
    if "die" in job:
        die_at_checkpoint(*job["die"])
    if "file_bytes" in job:
        resource.setrlimit(resource.RLIMIT_FSIZE, (job["file_bytes"], resource.RLIM_INFINITY))
    client = Client(job["scheduler"], timeout=10) if job.get("scheduler") else None
    dataset = Dataset.open(job["data"])
    if job.get("in_memory"):
        with h5py.File(job["data"]) as file:
            dataset = Dataset.from_arrays(file["X"][:], file["y"][:])
    train(dataset, client=client, run_dir=job["run"], resume=job.get("resume", False), **job["settings"])


def die_at_checkpoint(where: str, number: int) -> None:
    """Arrange for the death of this process."""
    write_member, sync, replace = archive._write_member, os.fsync, Path.replace
    seen = 0

    def die_if(reached: str) -> None:
        if reached == where and seen == number:
            os.kill(os.getpid(), signal.SIGKILL)

    def begun(archive: Any, name: str, preamble: bytes, content: Any) -> None:
        nonlocal seen
        write_member(archive, name, preamble, content)
        if name == "machine0_duals.npy":
            seen += 1
            die_if("begun")

    def written(handle: int) -> None:
        sync(handle)
        die_if("written")

    def named(path: Path, target: Path) -> Path:
        moved = replace(path, target)
        die_if("named")
        return moved

    archive._write_member, os.fsync, Path.replace = begun, written, named  # type: ignore[assignment]


ROLES = {"scheduler": scheduler, "worker": worker, "master": master}


def end_with_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def fork(job: dict[str, Any]) -> int:
    pid = os.fork()
    if pid:
        return pid
    end_with_parent()
    code = 0
    log = os.open(job["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for stream in (0, 1, 2):
        os.dup2(log if stream else os.open(os.devnull, os.O_RDONLY), stream)
    try:
        ROLES[job["role"]](job)
    except MLLKMError as error:
        code = error.exit_code
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
    except BaseException as error:
        code = 99
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
    sys.stderr.flush()
    os._exit(code)


def wait(pid: int, timeout_s: float) -> int | None:
    deadline = time.monotonic() + timeout_s
    while True:
        gone, status = os.waitpid(pid, os.WNOHANG)
        if gone:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > deadline:
            return None
        time.sleep(0.02)


def main() -> None:
    pids = set()
    for line in sys.stdin:
        job = json.loads(line)
        if "wait" in job:
            answer = {"exit": wait(job["wait"], job["timeout_s"])}
            if answer["exit"] is not None:
                pids.discard(job["wait"])
        else:
            answer = {"pid": fork(job)}
            pids.add(answer["pid"])
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    main()
