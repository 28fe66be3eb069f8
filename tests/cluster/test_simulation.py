"""The simulation of many workers, where its answer is known."""

from __future__ import annotations

import math
import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "jobs"))

from simulate import Cluster, Pass, here, simulated, stages

IDEAL = Cluster(1, math.inf, math.inf, math.inf, 0.0, 0.0)
WORK = Pass(row_s=1e-5, unit_rows=1000)


@pytest.mark.parametrize("workers", [1, 4, 64])
def test_without_network_and_scheduler_workers_divide_the_time(workers):
    assert simulated(WORK, 64e6, replace(IDEAL, workers=workers)) == pytest.approx(640.0 / workers)


def test_workers_that_share_a_core_are_no_faster_than_one():
    assert simulated(WORK, 64e6, replace(IDEAL, workers=4, cores=1.0)) == pytest.approx(640.0)


def test_fewer_units_than_workers_leave_workers_without_work():
    assert simulated(WORK, 4000, replace(IDEAL, workers=64)) == pytest.approx(0.01)


@pytest.mark.parametrize("workers", [64, 1024])
def test_results_come_over_one_link(workers):
    work, cluster = replace(WORK, row_bytes=1000.0), replace(IDEAL, workers=workers, link_bytes_s=1e9)
    assert simulated(work, 1e8, cluster) == pytest.approx(100.0, rel=0.2)


@pytest.mark.parametrize("workers", [16, 1024])
def test_storage_bounds_the_reading(workers):
    work, cluster = replace(WORK, read_bytes=1000.0), replace(IDEAL, workers=workers, storage_bytes_s=1e8)
    assert simulated(work, 1e7, cluster) == pytest.approx(100.0, rel=0.05)


def test_the_scheduler_bounds_the_tasks():
    cluster = replace(IDEAL, workers=1000, task_s=1e-2, latency_s=0.5)
    assert simulated(WORK, 2e8, cluster) == pytest.approx(0.5 + 1000 * 1e-2 + 2.0, rel=0.1)


def test_more_workers_are_never_slower_on_paper_and_learning_does_not_grow_beyond_its_rows():
    costs = {name: {"row_s": 1e-5, "unit_rows": 10_000} for name in ("check", "moments", "prepare", "decide")}
    costs |= {"learn_row_s": 1e-5, "hash_byte_s": 1e-9, "link_bytes_s": 1e9, "task_s": 1e-3, "latency_s": 0.05}
    found = [sum(stages(10**9, costs, replace(IDEAL, workers=count)).values()) for count in (16, 64, 256)]
    assert found == sorted(found, reverse=True)
    learn = [stages(rows, costs, replace(IDEAL, workers=16))["learn"] for rows in (10**8, 10**10)]
    assert learn[0] == learn[1] == pytest.approx(300.0)
    assert here(costs | {"two_processes": 2.0}, "check", 10**6, 1) == pytest.approx(10.0, rel=0.02)
