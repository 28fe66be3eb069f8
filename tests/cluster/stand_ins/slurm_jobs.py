"""What the stand-ins for SLURM share: a job is a session of processes, noted in a folder of $SLURM_STAND_IN."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path

import psutil

LIMIT_S = 120
"""No job outlives the tests."""


def jobs() -> Path:
    return Path(os.environ["SLURM_STAND_IN"])


def new_job() -> Path:
    number = 1
    while True:
        with suppress(FileExistsError):
            (jobs() / str(number)).mkdir()
            return jobs() / str(number)
        number += 1


def processes_of(session: int) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        with suppress(ProcessLookupError, psutil.Error):
            if os.getsid(process.pid) == session:
                found.append(process)
    return found


def end(session: int, patience_s: float = 10.0) -> None:
    """As scancel does: SIGTERM to every process of the job, and SIGKILL to those that stay."""
    left = processes_of(session)
    for number in (signal.SIGTERM, signal.SIGKILL):
        for process in left:
            with suppress(psutil.Error):
                process.send_signal(number)
        _, left = psutil.wait_procs(left, timeout=patience_s)
