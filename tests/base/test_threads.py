"""Teams: results in the order of the tasks, and no more at work than there may be."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest

from mllkm_scale.base.threads import Threads


@pytest.mark.parametrize("most", [1, 2, 3, 5])
def test_no_more_than_so_many_of_a_team_are_at_work(most):
    at_work, seen, lock = 0, [], threading.Lock()
    meet = threading.Event()

    def work(task: int) -> int:
        nonlocal at_work
        with lock:
            at_work += 1
            seen.append(at_work)
        meet.wait(0.01)
        with lock:
            at_work -= 1
        return task

    with Threads(3) as threads, threads.at_most(most) as part:
        assert part.size == min(3, most)
        assert (part is threads) == (most >= 3)
        assert part.run(work, range(12)) == list(range(12))
    assert max(seen) <= min(3, most)


def test_the_team_goes_on_when_a_part_of_it_has_ended():
    with Threads(2) as threads:
        for most in (1, 2):
            with threads.at_most(most) as part:
                part.run(abs, [-1])
        assert threads.run(abs, [-1, -2]) == [1, 2]


def test_when_a_task_fails_no_other_is_at_work_any_more():
    at_work, lock = set(), threading.Lock()

    def work(task: int) -> int:
        if task == 0:
            raise ValueError("the first one")
        with lock:
            at_work.add(task)
        threading.Event().wait(0.05)
        with lock:
            at_work.discard(task)
        return task

    with Threads(3) as threads:
        with pytest.raises(ValueError, match="the first one"):
            threads.run(work, range(6))
        assert not at_work
        assert threads.run(abs, [-1]) == [1]


LATE_LIBRARY = """
import os
os.environ.pop("OPENBLAS_NUM_THREADS", None)
import numpy
from threadpoolctl import threadpool_info, threadpool_limits
from mllkm_scale.base.threads import one_blas_thread

def threads():
    return {info["num_threads"] for info in threadpool_info() if info["user_api"] == "blas"}

threadpool_limits(limits=2, user_api="blas")
with one_blas_thread():
    assert threads() == {1}
assert threads() == {2}
import scipy.linalg
threadpool_limits(limits=2, user_api="blas")
with one_blas_thread():
    assert threads() == {1}
assert threads() == {2}
"""


def test_a_library_that_is_loaded_later_runs_on_one_thread_too():
    subprocess.run([sys.executable, "-c", LATE_LIBRARY], check=True, timeout=60)
