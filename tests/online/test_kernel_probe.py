"""Prices: by brute force, by threads and by dask workers the same; workers are asked where it pays."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from sklearn.metrics.pairwise import rbf_kernel

from mllkm_scale.base.threads import Threads
from mllkm_scale.cluster import ClusterSpec, open_client
from mllkm_scale.kernels.generic import GenericFamily
from mllkm_scale.kernels.grid import Family
from mllkm_scale.online import OnlineKernelMKL
from mllkm_scale.online.streamed_kernels import probe
from mllkm_scale.online.streamed_kernels.bounds import SupportRows
from mllkm_scale.online.streamed_kernels.grams import FamilyKernels, FunctionKernels
from mllkm_scale.online.streamed_kernels.lists import GivenKernels, GridKernels
from mllkm_scale.online.streamed_kernels.probe import KernelProbe


@pytest.fixture(scope="module")
def client():
    with open_client(ClusterSpec("local", workers=2), memory_budget=500_000_000, timeout_s=60) as client:
        yield client


@pytest.fixture
def always_pays(monkeypatch):
    monkeypatch.setattr(probe, "pays", lambda *sizes: True)


@pytest.fixture(params=["given", "component-wise", "grid", "family", "functions"])
def kernels(request, streamable):
    problem = streamable("wine", map="squared")
    X, n = problem.X, len(problem.X)
    if request.param == "grid":
        return GridKernels(problem.grid, problem.ids)
    if request.param == "family":
        return FamilyKernels(GenericFamily.fit(X), np.arange(0, 240, 7))
    if request.param == "functions":
        return FunctionKernels(tuple(partial(rbf_kernel, gamma=gamma) for gamma in np.geomspace(0.01, 1.0, 20)))
    family = Family("gaussian", componentwise=request.param == "component-wise", local_bias=0.5)
    return GivenKernels(family.kernels(X[np.arange(900) % n], np.geomspace(0.01, 1.0, 900)))


def support_of(problem):
    rng = np.random.default_rng(0)
    return SupportRows(problem.X[::2].copy(), rng.normal(size=(len(problem.X[::2]), 3)))


def test_prices_are_those_of_the_grams(streamable, kernels):
    support = support_of(streamable("wine", map="squared"))
    few, a = kernels.take(np.arange(0, len(kernels), 9)), support.signed_duals
    with Threads(2) as threads:
        prices = KernelProbe(threads)(few, support)
    if isinstance(few, GivenKernels | GridKernels):
        phi = few.plain.features(support.rows)
        grams = [phi[:, m] @ phi[:, m].T for m in range(len(few))]
    else:
        grams = few.grams(support.rows)
    np.testing.assert_allclose(prices, [np.vdot(a, K @ a) for K in grams], rtol=1e-9, atol=1e-9)
    responses = few.responses(support.rows, support.rows, a)
    np.testing.assert_allclose(responses[:, :, -1].T, grams[-1] @ a, atol=1e-9)


def test_workers_give_the_bits_of_threads(streamable, kernels, client, tmp_path, always_pays):
    from mllkm_scale.cluster.executor import dask_executor

    support, threads = support_of(streamable("wine", map="squared")), Threads()
    with dask_executor(client, None, tmp_path) as executor:
        probe = KernelProbe(threads, executor)
        assert probe(kernels, support).tobytes() == KernelProbe(threads)(kernels, support).tobytes()
        assert probe.n_sent == len(kernels)
        assert not list(executor.folder.iterdir())


def test_a_machine_of_a_cluster_has_the_bits_of_one_without(streamable, client, tmp_path, always_pays):
    problem = streamable("ionosphere")
    machines = []
    for workers in (client, None):
        with OnlineKernelMKL(
            problem.X, problem.y, family=problem.grid, C=problem.C, client=workers, scratch_dir=tmp_path
        ) as mkl:
            mkl.learn(np.array_split(problem.ids, 3))
            machines.append((mkl.machine.weights.tobytes(), mkl.machine.duals.tobytes(), mkl.certificate))
            assert mkl.stream.probe.n_sent > 0 if workers else mkl.stream.probe.n_sent == 0
    assert machines[0] == machines[1]
    assert not list(tmp_path.iterdir())


def test_few_kernels_are_priced_here(streamable, client, tmp_path):
    problem = streamable("wine", map="squared")
    with OnlineKernelMKL(problem.X, problem.y, family=problem.grid, client=client, scratch_dir=tmp_path) as mkl:
        mkl.process(problem.ids[:50])
        assert mkl.stream.probe.n_sent == 0
