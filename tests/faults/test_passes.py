"""Tasks that go wrong: each ends its pass with an error that names it, or goes on until it is done."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import numpy as np
import pytest

from mllkm_scale.base.threads import one_blas_thread
from mllkm_scale.cluster import DaskExecutor
from mllkm_scale.cluster.task import do_range
from mllkm_scale.data import Dataset
from mllkm_scale.errors import ClusterError, DataError
from mllkm_scale.kernels.grid import Family, KernelGrid
from mllkm_scale.scan.scanner import Scanner
from mllkm_scale.scan.work import Scales

N_UNITS = 6


def work_of(do, paths=()):
    """A pass over units; its class is pickled by value, since the workers cannot import this file."""

    class Units:
        unit_work = 1e10  # so much that each unit is a task
        paths: tuple[Path, ...] = ()

        def __call__(self, units):
            return [do(unit) for unit in units]

        def describe(self, units):
            return f"units {units[0]} to {units[-1]}"

    work = Units()
    work.paths = paths
    return work


def raising(error):
    def do(unit):
        if unit == 3:
            raise error
        return unit

    return work_of(do)


@pytest.fixture
def executor(farm, client, tmp_path):
    farm.scale(client, 2)
    return DaskExecutor(client, tmp_path, timeout_s=30.0)


def results(executor, work):
    return [unit for part in executor.start(work, N_UNITS) for unit in part]


def test_the_results_come_in_order(executor):
    assert results(executor, work_of(lambda unit: unit)) == list(range(N_UNITS))


@pytest.mark.parametrize(
    "error",
    [ValueError("broken"), MemoryError("broken"), TimeoutError("broken"), OSError(5, "broken")],
    ids=lambda error: type(error).__name__,
)
def test_a_task_that_raises_is_named_at_once(executor, error):
    started = time.monotonic()
    with pytest.raises(ClusterError, match=rf"units 3 to 3 failed on a worker \({type(error).__name__}.*broken"):
        results(executor, raising(error))
    assert time.monotonic() - started < 10


def test_a_task_that_is_cancelled_from_within_is_named_at_once(executor):
    from concurrent.futures import CancelledError

    with pytest.raises(ClusterError, match=r"units 3 to 3 failed on a worker \(CancelledError"):
        results(executor, raising(CancelledError("broken")))


def test_an_error_of_the_package_comes_as_it_is(executor):
    with pytest.raises(DataError, match="row 7") as raised:
        results(executor, raising(DataError("train.h5:X: row 7 is damaged")))
    assert raised.value.__cause__ is None


def test_a_task_that_kills_its_workers_is_named_in_bounded_time(executor, farm):
    def do(unit):
        if unit == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        return unit

    with pytest.raises(ClusterError, match=r"units 3 to 3.*4 workers died one after the other"):
        results(executor, work_of(do))
    assert results(executor, work_of(lambda unit: unit)) == list(range(N_UNITS))


def test_a_result_that_takes_long_to_fetch_is_fetched(executor):
    class Slow:
        def __reduce__(self):
            time.sleep(0.7)
            return str, ("fetched",)

    assert results(executor, work_of(lambda unit: Slow() if unit == 3 else unit))[3] == "fetched"


def test_a_result_on_a_worker_that_hangs_is_made_again_by_another(executor, client, until):
    under_way = executor.start(work_of(lambda unit: unit), N_UNITS)
    until(lambda: not any(client.processing().values()), "all results")
    hanging = next(iter(client.run(os.getpid).values()))
    os.kill(hanging, signal.SIGSTOP)
    try:
        started = time.monotonic()
        assert [unit for part in under_way for unit in part] == list(range(N_UNITS))
        assert time.monotonic() - started < 25  # the scheduler would try for longer to reach it
    finally:
        os.kill(hanging, signal.SIGKILL)


def test_a_range_that_was_taken_is_not_done_again_when_its_worker_dies(executor, tmp_path, client):
    done = tmp_path / "done"

    def do(unit):
        with done.open("a") as file:
            file.write(f"{unit}\n")
        if unit == N_UNITS - 1:
            time.sleep(1.0)
        return unit

    under_way = iter(executor.start(work_of(do), N_UNITS))
    taken = [next(under_way) for _ in range(N_UNITS - 1)]
    for pid in client.run(os.getpid).values():
        os.kill(pid, signal.SIGKILL)
    assert [*taken, *under_way] == [[unit] for unit in range(N_UNITS)]
    times = np.bincount([int(line) for line in done.read_text().split()])
    assert times[: N_UNITS - 1].tolist() == [1] * (N_UNITS - 1)
    assert times[-1] >= 2


def test_results_that_are_lost_again_and_again_end_the_pass(client, farm, tmp_path):
    farm.scale(client, 2)
    executor = DaskExecutor(client, tmp_path, timeout_s=2.0)

    class Deadly:
        def __reduce__(self):
            os.kill(os.getpid(), signal.SIGKILL)  # the task is done, and its worker dies while it hands over the result
            return str, ()

    started = time.monotonic()
    with pytest.raises(ClusterError, match=r"units 3 to 3: no result for 2 s"):
        results(executor, work_of(lambda unit: Deadly() if unit == 3 else unit))
    assert time.monotonic() - started < 20


def test_a_worker_that_is_paused_is_told_of(own_farm, tmp_path, until):
    own_farm.start_worker(memory_limit="100MB")  # less than it holds already

    def paused():
        (worker,) = client.scheduler_info(n_workers=-1)["workers"].values()
        return worker["status"] == "paused"

    with own_farm.client() as client:
        own_farm.settle(client, 1)
        until(paused, "the worker to be paused")
        executor = DaskExecutor(client, tmp_path, timeout_s=2.5)
        with pytest.raises(
            ClusterError, match=r"1 workers are at the scheduler \S+, 1 of them paused for lack of memory"
        ):
            results(executor, work_of(lambda unit: unit))


def test_a_pass_that_is_given_up_is_taken_back(executor, client, tmp_path, until):
    done = tmp_path / "done"

    def do(unit):
        with done.open("a") as file:
            file.write(f"{unit}\n")
        time.sleep(0.5)
        return unit

    under_way = iter(executor.start(work_of(do), 40))
    next(under_way)
    under_way.close()
    until(lambda: not any(client.processing().values()), "the tasks to be taken back")
    assert len(done.read_text().split()) < 20


@pytest.fixture
def short_sight(client):
    """Workers that do not wait long for a file to appear."""

    def look(seconds):
        from mllkm_scale.cluster import task

        task._VISIBLE_S = seconds

    client.run(look, 0.2)
    yield
    client.run(look, 10.0)


def test_a_file_that_workers_do_not_see_is_named_with_the_remedy(executor, short_sight):
    shared = executor.share("scales", Scales(np.ones((2, 2))))
    shared.drop()
    with pytest.raises(ClusterError, match=rf"worker tcp://\S+ does not see {shared.path}: .* that master and workers"):
        results(executor, work_of(lambda unit: unit, shared.paths))


def test_a_damaged_shared_file_is_named(executor):
    shared = executor.share("scales", Scales(np.ones((200, 2))))
    content = bytearray(shared.path.read_bytes())
    content[len(content) // 2] ^= 1
    shared.path.write_bytes(content)
    with pytest.raises(ClusterError, match=rf"{shared.path} is damaged"):
        results(executor, work_of(lambda unit: shared.get().values.sum(), shared.paths))


def test_a_worker_with_another_version_of_the_package_is_refused(executor, client):
    future = client.submit(do_range, work_of(lambda unit: unit), range(2), "0.0.0", pure=False)
    with pytest.raises(
        ClusterError, match=r"worker tcp://\S+ has mllkm-scale \S+ and the training process has 0\.0\.0"
    ):
        future.result(timeout=20)


def test_workers_read_a_support_in_a_file_and_give_the_bits_of_one_in_memory(executor, tmp_path):
    rng = np.random.default_rng(0)
    X, duals = rng.normal(size=(5000, 6)), rng.normal(size=(5000, 3))
    anchors = executor.place(Dataset.from_arrays(X[:700]))
    grid = KernelGrid(Family("gaussian", local_bias=1.0), anchors, np.array([0.1, 0.2]), np.ones((700, 2)))
    with one_blas_thread():
        expected = Scanner(grid).scan(X, duals, count=30)
        scan = Scanner(grid, executor, support_bytes=1000).start(lambda: (X, duals), 30)
        assert [path.suffix for path in tmp_path.glob("support-*.rows")] == [".rows"]
        found = scan.result()
    np.testing.assert_array_equal(found.ids, expected.ids)
    np.testing.assert_array_equal(found.values, expected.values)
    assert found.maximum == expected.maximum
    assert not list(tmp_path.glob("support-*"))
