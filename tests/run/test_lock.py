from __future__ import annotations

import errno
import fcntl
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mllkm_scale.errors import ScratchError
from mllkm_scale.run.lock import locked

HOLDER = """
import errno, fcntl, sys
from pathlib import Path
from mllkm_scale.run.lock import locked

def refuse(lock, operation):
    raise OSError(errno.ENOLCK, "No locks available")

if sys.argv[2:]:
    fcntl.flock = refuse
with locked(Path(sys.argv[1])):
    print(1, flush=True)
    input()
"""


@contextmanager
def another_process(lock_file: Path, *system: str) -> Iterator[subprocess.Popen[str]]:
    """A process that holds the lock, and is killed in the end."""
    command = [sys.executable, "-c", HOLDER, str(lock_file), *system]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "1\n"
        try:
            yield holder
        finally:
            holder.send_signal(signal.SIGKILL)
            holder.wait()


def take(lock_file: Path) -> None:
    with locked(lock_file):
        pass


@pytest.fixture
def lock_file(tmp_path: Path) -> Path:
    return tmp_path / ".lock"


@pytest.fixture
def marker(lock_file: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What a process that was killed has left where the system has no locks, as is so here from now on."""

    def refuse(lock: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    with another_process(lock_file, "no system locks"):
        pass
    monkeypatch.setattr(fcntl, "flock", refuse)
    return lock_file.with_name(".lock-holder")


def test_a_lock_that_is_held_is_refused_with_its_holder_until_it_is_given_back(lock_file: Path) -> None:
    with locked(lock_file):
        for _ in range(2):
            with pytest.raises(ScratchError, match=f"in use.*process {os.getpid()} on {socket.gethostname()}"):
                take(lock_file)
    assert not lock_file.exists()
    take(lock_file)


def test_a_process_holds_its_lock_until_it_is_killed(lock_file: Path) -> None:
    with (
        another_process(lock_file) as holder,
        pytest.raises(ScratchError, match=rf"process {holder.pid} on .*: wait for it to end.*remove .*\.lock"),
    ):
        take(lock_file)
    assert lock_file.exists()
    take(lock_file)
    assert not lock_file.exists()


def test_a_lock_is_given_back_by_any_thread(lock_file: Path) -> None:
    lock = locked(lock_file)
    lock.__enter__()
    thread = threading.Thread(target=lock.__exit__, args=(None, None, None))
    thread.start()
    thread.join()
    take(lock_file)


def test_a_lock_that_is_given_back_while_it_is_waited_for_has_one_holder_only(lock_file: Path) -> None:
    held = []

    def work() -> None:
        for _ in range(20):
            try:
                with locked(lock_file):
                    held.append(1)
                    assert sum(held) == 1
                    held.pop()
            except ScratchError:
                pass

    failed: list[BaseException] = []

    def watched() -> None:
        try:
            work()
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=watched) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []


@pytest.mark.parametrize("text", ["", "{", "[1]", '{"pid": "x", "host": 3}'])
def test_a_lock_file_that_says_nothing_is_taken_over(lock_file: Path, text: str) -> None:
    lock_file.write_text(text)
    take(lock_file)


@pytest.mark.parametrize("target", ["file", "absent"])
def test_a_lock_file_that_is_a_symbolic_link_is_refused_and_its_target_stays(lock_file: Path, target: str) -> None:
    precious = lock_file.with_name("precious")
    if target == "file":
        precious.write_text("data")
    lock_file.symlink_to(precious)
    with pytest.raises(ScratchError, match=r"\.lock is a symbolic link.*remove it"):
        take(lock_file)
    assert lock_file.is_symlink()
    assert (precious.read_text() if target == "file" else precious.exists()) == ("data" if target == "file" else False)


def test_without_system_locks_the_lock_of_a_dead_process_is_taken_over(lock_file: Path, marker: Path) -> None:
    assert marker.exists()
    take(lock_file)
    assert not marker.exists()
    assert not lock_file.exists()


def test_without_system_locks_a_younger_process_of_the_same_number_is_not_the_holder(
    lock_file: Path, marker: Path
) -> None:
    _, host, _ = marker.read_text().split()
    marker.write_text(f"{os.getpid()}\n{host}\n1\n")
    take(lock_file)


@pytest.mark.parametrize(
    "change",
    [
        lambda lines: [str(os.getpid()), lines[1]],
        lambda lines: [lines[0], "elsewhere", *lines[2:]],
    ],
    ids=["a live process", "another host"],
)
def test_without_system_locks_a_live_process_or_another_host_keeps_the_folder(
    lock_file: Path, marker: Path, change: Callable[[list[str]], list[str]]
) -> None:
    marker.write_text("\n".join(change(marker.read_text().split())) + "\n")
    with pytest.raises(ScratchError, match=r"in use by a training run of process \d+ on \S+: .*remove .*\.lock-holder"):
        take(lock_file)


def test_without_system_locks_a_lock_that_is_held_is_refused(lock_file: Path, marker: Path) -> None:
    with locked(lock_file), pytest.raises(ScratchError, match=f"process {os.getpid()} on"):
        take(lock_file)


def test_without_system_locks_a_symbolic_link_is_not_followed(lock_file: Path, marker: Path) -> None:
    precious = lock_file.with_name("precious")
    precious.write_text("data")
    marker.unlink()
    marker.symlink_to(precious)
    with pytest.raises(ScratchError, match=r"remove .*\.lock-holder"):
        take(lock_file)
    assert precious.read_text() == "data"
