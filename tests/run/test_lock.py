from __future__ import annotations

import errno
import fcntl
import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from mllkm_scale.errors import ScratchError
from mllkm_scale.run.lock import acquire, release

HOLDER = """
import sys
from pathlib import Path
from mllkm_scale.run.lock import acquire
acquire(Path(sys.argv[1]))
print(1, flush=True)
input()
"""


def dead_pid() -> int:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def write_lock(path: Path, **changes: Any) -> None:
    owner = {"pid": os.getpid(), "host": socket.gethostname(), "since": time.time()} | changes
    path.write_text(json.dumps(owner))


@pytest.fixture
def lock_file(tmp_path: Path) -> Path:
    return tmp_path / ".lock"


@pytest.fixture
def no_system_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(lock: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)


def test_a_lock_that_is_held_is_refused_with_its_holder_until_it_is_given_back(lock_file: Path) -> None:
    lock = acquire(lock_file)
    with pytest.raises(ScratchError, match=f"in use.*process {os.getpid()}"):
        acquire(lock_file)
    release(lock_file, lock)
    assert not lock_file.exists()
    release(lock_file, acquire(lock_file))


def test_a_process_holds_its_lock_until_it_is_killed(lock_file: Path) -> None:
    command = [sys.executable, "-c", HOLDER, str(lock_file)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "1\n"
        with pytest.raises(ScratchError, match=f"process {holder.pid}"):
            acquire(lock_file)
        holder.kill()
        holder.wait()
    assert lock_file.exists()
    release(lock_file, acquire(lock_file))


@pytest.mark.parametrize("text", ["", "{", "[1]", '{"pid": "x", "host": 3}'])
def test_a_lock_file_that_says_nothing_is_taken_over(lock_file: Path, text: str) -> None:
    lock_file.write_text(text)
    release(lock_file, acquire(lock_file))


@pytest.mark.usefixtures("no_system_locks")
def test_without_system_locks_the_lock_of_a_dead_process_is_taken_over(lock_file: Path) -> None:
    write_lock(lock_file, pid=dead_pid())
    release(lock_file, acquire(lock_file))


@pytest.mark.usefixtures("no_system_locks")
def test_without_system_locks_a_younger_process_of_the_same_number_is_not_the_holder(lock_file: Path) -> None:
    write_lock(lock_file, since=1.0)
    release(lock_file, acquire(lock_file))


@pytest.mark.usefixtures("no_system_locks")
@pytest.mark.parametrize("changes", [{}, {"host": "elsewhere"}])
def test_without_system_locks_a_live_process_or_another_host_keeps_the_folder(
    lock_file: Path, changes: dict[str, str]
) -> None:
    write_lock(lock_file, **changes)
    with pytest.raises(ScratchError, match=r"in use.*remove .*\.lock"):
        acquire(lock_file)
