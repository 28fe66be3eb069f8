"""The scheduler is lost: the training ends in bounded time and can be resumed, or goes on when it is back."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

import pytest

from mllkm_scale import Dataset, train
from mllkm_scale.errors import ClusterError

pytestmark = pytest.mark.usefixtures("many_tasks")
SETTINGS: dict[str, Any] = {"anchors": "all", "tol": 0.02, "overlap": "always", "n_jobs": 1, "memory_budget": "1GB"}


def test_a_scheduler_that_is_lost_ends_the_training_in_time_and_it_goes_on_without(
    own_farm, data, tmp_path, reference, at_scan
):
    own_farm.start_worker()
    with own_farm.client(timeout_s=2.0) as client:
        own_farm.settle(client, 1)
        landed = at_scan(own_farm.kill_scheduler, 3)
        started = time.monotonic()
        with pytest.raises(ClusterError, match=rf"the scheduler {own_farm.address} is lost: .* resume"):
            train(Dataset.open(data), client=client, run_dir=tmp_path / "run", **SETTINGS)
        assert landed == [3]
        assert time.monotonic() - started < 30
    assert not (tmp_path / "run" / "exchange").exists()
    train(Dataset.open(data), run_dir=tmp_path / "run", resume=True, **SETTINGS)
    assert (tmp_path / "run" / "model.mllkm").read_bytes() == reference()


def test_a_scheduler_that_comes_back_with_workers_changes_no_bit(own_farm, data, tmp_path, trained, reference, at_scan):
    def restart() -> None:
        own_farm.kill_scheduler()
        own_farm.start_scheduler()
        own_farm.start_worker()

    own_farm.start_worker()
    with own_farm.client(timeout_s=20.0) as client:
        own_farm.settle(client, 1)
        landed = at_scan(restart, 3)
        assert trained(data, tmp_path / "run", client=client) == reference()
        assert landed == [3]


def test_a_scheduler_that_hangs_ends_the_training_in_time(own_farm, data, tmp_path, reference, at_scan, monkeypatch):
    monkeypatch.setattr("mllkm_scale.cluster.executor._ANSWER_S", 1.0)
    own_farm.start_worker()
    with own_farm.client(timeout_s=2.0) as client:
        own_farm.settle(client, 1)
        at_scan(lambda: os.kill(own_farm.scheduler, signal.SIGSTOP), 3)
        started = time.monotonic()
        with pytest.raises(ClusterError, match=r"no result for 2 s|is lost"):
            train(Dataset.open(data), client=client, run_dir=tmp_path / "run", **(SETTINGS | {"worker_timeout": 2.0}))
        assert time.monotonic() - started < 30
    train(Dataset.open(data), run_dir=tmp_path / "run", resume=True, **SETTINGS)
    assert (tmp_path / "run" / "model.mllkm").read_bytes() == reference()


def test_a_client_that_was_closed_is_no_cluster(own_farm, data, tmp_path):
    with own_farm.client() as client:
        client.close()
        with pytest.raises(ClusterError, match="is lost"):
            train(Dataset.open(data), client=client, run_dir=tmp_path / "run", **SETTINGS)
