"""Dask workers probe for a stream to the bits that it has without them, whatever becomes of them."""

from __future__ import annotations

import os
import signal
import time
from contextlib import closing

import pytest

from mllkm_scale import MLLKMClassifier
from mllkm_scale.cluster import ClusterSpec, DaskExecutor, open_client
from mllkm_scale.data import Dataset
from mllkm_scale.errors import ClusterError
from mllkm_scale.online import DatasetSamples, stream
from mllkm_scale.online.machine import BLOCK, EPISODE

SETTINGS = {"warm_up": 150, "max_kernels": 40, "gammas": [0.005, 0.02], "n_jobs": 1}
N = 150 + 4 * BLOCK * EPISODE // 2


@pytest.fixture(scope="module")
def client():
    """Two worker processes, each of which is started again if it dies."""
    with open_client(ClusterSpec("local", workers=2), memory_budget=500_000_000, timeout_s=60) as client:
        yield client


@pytest.fixture(scope="module")
def samples(real_data):
    X, y = real_data("digits")
    return lambda: closing(DatasetSamples(Dataset.from_arrays(X[:N], y[:N] % 3, chunk_rows=BLOCK)))


@pytest.fixture(scope="module")
def alone(samples, tmp_path_factory):
    """The model file of the stream without workers."""
    return model_bytes(samples, tmp_path_factory.mktemp("alone") / "run")


@pytest.fixture
def probes(monkeypatch):
    """All probes go to the workers; the files that are shared when each begins."""
    monkeypatch.setattr("mllkm_scale.online.probing.LEAST_REMOTE_WORK", 0)
    return count_probes(monkeypatch)


def count_probes(monkeypatch):
    start, shared = DaskExecutor.start, []

    def counted(executor, work, n_units):
        shared.append(len(list(executor.folder.iterdir())))
        return start(executor, work, n_units)

    monkeypatch.setattr(DaskExecutor, "start", counted)
    return shared


def model_bytes(samples, run, **settings):
    with samples() as source:
        stream(source, run_dir=run, **SETTINGS | settings)
    assert not (run / "exchange").exists()
    return (run / "model.mllkm").read_bytes()


def test_the_bits_are_those_without_workers(client, samples, alone, probes, tmp_path):
    assert model_bytes(samples, tmp_path / "run", client=client) == alone
    assert len(probes) > 10
    assert max(probes) <= 4  # support and scales: what a probe has shared goes with it


def test_small_probes_stay_at_home(client, samples, alone, monkeypatch, tmp_path):
    probes = count_probes(monkeypatch)
    assert model_bytes(samples, tmp_path / "run", client=client) == alone
    assert not probes


def test_a_worker_that_is_killed_in_between_changes_no_bit(client, samples, alone, probes, tmp_path):
    victim, *_ = client.run(os.getpid).values()
    polls = iter(range(100))

    def kill() -> bool:
        if next(polls) == 5:  # a probe is under way
            os.kill(victim, signal.SIGKILL)
        return False

    assert model_bytes(samples, tmp_path / "run", client=client, should_stop=kill) == alone
    assert next(polls) > 6


def test_partial_fit_probes_by_the_workers_of_the_active_client(client, real_data, probes, monkeypatch):
    X, y = real_data("digits")
    bits, sent = [], []
    for active in (client, None):
        monkeypatch.setattr("mllkm_scale.estimators.classifier.current_client", lambda active=active: active)
        machine = MLLKMClassifier(**SETTINGS)
        for start in (0, 500):  # between the calls, no probe is under way at the workers
            machine.partial_fit(X[start : start + 500], y[start : start + 500], classes=range(10))
            assert not any(client.processing().values())
        bits.append(machine.kernel_coef_.tobytes())
        sent.append(len(probes))
    assert bits[0] == bits[1]
    assert sent[0] == sent[1] > 10


def test_workers_that_answer_no_more_end_it_in_time_and_it_goes_on_without_them(
    client, samples, alone, probes, tmp_path
):
    client.wait_for_workers(2, timeout=30)
    pids, polls, stopped_s = list(client.run(os.getpid).values()), iter(range(100)), []

    def freeze() -> bool:
        if next(polls) == 4:
            stopped_s.append(time.monotonic())
            for pid in pids:
                os.kill(pid, signal.SIGSTOP)
        return False

    options = {"client": client, "checkpoint_s": 0, "should_stop": freeze, "worker_timeout": 5.0}
    try:
        with pytest.raises(ClusterError, match=r"no result for 5 s.*worker_timeout"):
            model_bytes(samples, tmp_path / "run", **options)
        assert time.monotonic() - stopped_s[0] < 9.0  # it is waited for once
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
    assert model_bytes(samples, tmp_path / "run", resume=True) == alone
