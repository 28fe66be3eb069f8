"""Workers die, hang, come late or do not fit: the same bits, or a named error in bounded time."""

from __future__ import annotations

import os
import re
import signal
import time
from functools import partial
from typing import Any

import psutil
import pytest

from mllkm_scale import Dataset, train
from mllkm_scale.cluster.executor import dask_executor
from mllkm_scale.errors import BudgetError, ClusterError

pytestmark = pytest.mark.usefixtures("many_tasks")
GRACE_S = 15.0  # beyond the time that was asked for, until an error must be there


def kill(pids: list[int]) -> None:
    for pid in pids:
        os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("overlap", ["always", "never", "auto"])
def test_a_worker_killed_in_the_middle_of_a_scan_changes_no_bit(
    farm, client, data, tmp_path, trained, reference, at_scan, overlap
):
    victim = farm.scale(client, 2)[:1]
    landed = at_scan(partial(kill, victim), 2, frozen=lambda: victim)
    assert trained(data, tmp_path / "run", client=client, overlap=overlap) == reference(overlap=overlap)
    assert landed == [2]


def test_all_workers_gone_for_a_while_change_no_bit(farm, client, data, tmp_path, trained, reference, at_scan):
    pids = farm.scale(client, 2)
    landed = at_scan(partial(kill, pids), 2, frozen=lambda: pids)  # their nannies start others
    assert trained(data, tmp_path / "run", client=client) == reference()
    assert landed == [2]


def test_workers_that_die_again_and_again_change_no_bit(farm, client, data, tmp_path, trained, reference, at_scan):
    farm.scale(client, 2)

    def kill_the_first() -> None:
        kill(farm.settle(client, 2)[:1])

    landed = at_scan(kill_the_first, 1, 2, 4)
    assert trained(data, tmp_path / "run", client=client) == reference()
    assert landed == [1, 2, 4]


def test_workers_that_come_late_change_no_bit(own_farm, data, tmp_path, trained, reference, at_scan):
    with own_farm.client() as client:
        own_farm.start_worker()  # takes seconds, in which the training waits
        assert not client.scheduler_info()["workers"]

        def another() -> None:
            own_farm.start_worker()
            own_farm.settle(client, 2)

        landed = at_scan(another, 2)
        assert trained(data, tmp_path / "run", client=client) == reference()
        assert landed == [2]


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP], ids=["dead", "hanging"])
def test_workers_gone_for_good_end_the_training_in_time_and_it_goes_on_without_them(
    own_farm, data, tmp_path, reference, at_scan, how
):
    worker = own_farm.start_worker()
    with own_farm.client() as client:
        own_farm.settle(client, 1)
        started = 0.0

        def gone() -> None:
            nonlocal started
            started = time.monotonic()
            os.kill(worker, how)

        at_scan(gone, 3)
        # The pass over the samples is waited for before the scan that was begun beside it.
        waited = r"(kernels \d+ to \d+ of the scan|chunks \d+ to \d+ of the samples): no result for 2 s.*worker_timeout"
        with pytest.raises(ClusterError, match=waited):
            train(Dataset.open(data), client=client, run_dir=tmp_path / "run", **settings(2.0))
        assert time.monotonic() - started < 2.0 + GRACE_S
    train(Dataset.open(data), run_dir=tmp_path / "run", resume=True, **settings(2.0))
    assert (tmp_path / "run" / "model.mllkm").read_bytes() == reference()


def settings(worker_timeout: float) -> dict[str, Any]:
    usual = {"anchors": "all", "tol": 0.02, "overlap": "always", "n_jobs": 1, "memory_budget": "1GB"}
    return usual | {"worker_timeout": worker_timeout}


def test_what_a_hanging_worker_had_to_do_is_done_by_another(farm, client, data, tmp_path, trained, reference, at_scan):
    pids = farm.scale(client, 2)[:1]
    try:
        landed = at_scan(lambda: None, 2, frozen=lambda: pids)  # until the scheduler gives it up
        assert trained(data, tmp_path / "run", client=client) == reference()
        assert landed == [2]
    finally:
        for pid in filter(psutil.pid_exists, pids):
            os.kill(pid, signal.SIGKILL)


def test_a_worker_that_is_too_small_is_named_with_what_it_needs(own_farm, data, tmp_path):
    own_farm.start_worker(memory_limit="150MB")
    with own_farm.client() as client:
        own_farm.settle(client, 1)
        [address] = client.scheduler_info(n_workers=-1)["workers"]
        with pytest.raises(BudgetError, match=rf"worker {address} has a memory limit of 150.*--memory-limit"):
            train(Dataset.open(data), client=client, run_dir=tmp_path / "run", **settings(20.0))
    assert not (tmp_path / "run" / "exchange").exists()


def test_workers_that_never_come_are_waited_for_no_longer_than_asked(own_farm, data, tmp_path):
    with own_farm.client() as client:
        started = time.monotonic()
        with pytest.raises(ClusterError, match=rf"no worker has joined the scheduler {own_farm.address}.*1 s"):
            train(Dataset.open(data), client=client, run_dir=tmp_path / "run", **settings(1.0))
        assert time.monotonic() - started < 1.0 + GRACE_S


@pytest.mark.parametrize(("timeout_s", "told"), [(100.0, ""), (1.0, r"gives up a frozen worker only after [\d.]+ s")])
def test_a_scheduler_that_is_more_patient_than_the_training_is_told_of(farm, client, tmp_path, timeout_s, told):
    farm.scale(client, 1)
    said: list[str] = []
    with dask_executor(client, None, tmp_path, timeout_s=timeout_s, notify=said.append):
        assert bool(said) == bool(told)
        assert re.search(told, " ".join(said))
