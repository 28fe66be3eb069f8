"""Training time on many workers: a simulation with costs measured on this machine, checked with 1 to 8 workers.

    python jobs/simulate.py [--measure] [--data mnist8m-600000.h5] [--rows 100000] [--workers 1 2 4 8]
                            [--link-gbit 10] [--storage-gb 10]

With --measure, dask workers on this machine do two passes over the first rows of the file: the moments of raw rows,
where a task sends a few matrices, and the scores of a learned machine, where it sends ten numbers per row. One worker
gives the costs: seconds per row, bytes per row and bytes per task; empty tasks give those of the scheduler. Then the
passes of 1, 2, 4 and 8 workers are simulated and measured. Workers that share cores share their speed, so the speed of
two concurrent processes is measured, too. --link-mbit puts every worker in its own network namespace behind a link of
this speed (needs root). Without --measure, the costs are those of results/simulate.json.

The simulated cluster has one link for each worker and for the training process, and a shared file system. Prints how
long each stage takes for 10^7 to 10^10 rows on 16 to 1,024 workers, and writes results/simulate.json.
"""

from __future__ import annotations

import argparse
import heapq
import json
import math
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent / "bench"))

from common import ROOT, write

from mllkm_scale.cluster.task import ranges_each
from mllkm_scale.kernels.anchors import AnchorSpec
from mllkm_scale.learn.settings import MOST_LEARNED, learn_settings, learned_kernels
from mllkm_scale.plan.training import BASE_BYTES

ROWS, WORKERS = tuple(10**k for k in (7, 8, 9, 10)), (16, 64, 256, 1024)
FEATURES, COMPONENTS, CLASSES = 784, 50, 10
MASTER_ROW_BYTES = 33 + 2 * CLASSES  # labels, signs, and all else that the master holds per row
WITHIN = 0.15  # goal: the largest relative difference of simulated and measured seconds


@dataclass(frozen=True)
class Cluster:
    """Workers with one thread each, and the cores that they share."""

    workers: int
    link_bytes_s: float  # of the master
    worker_bytes_s: float  # of each worker
    storage_bytes_s: float  # of all together
    task_s: float  # that scheduler and client take for a task
    latency_s: float  # of a pass with one empty task
    cores: float = math.inf


@dataclass(frozen=True)
class Pass:
    """The costs of a pass over the rows, for a worker, the network and the master."""

    row_s: float
    unit_rows: int  # rows that are not divided
    read_bytes: float = 0.0  # of a row, from storage
    row_bytes: float = 0.0  # of a row, in the result
    task_bytes: float = 0.0  # of a task, in the result
    node_bytes: float = 0.0  # likewise, of each node of the tree of merged units
    node_s: float = 0.0  # that the master takes to receive and merge one


def simulated(work: Pass, rows: float, cluster: Cluster) -> float:
    """Seconds of a pass: tasks go to the next free worker, and their results over one link to the master."""
    units = math.ceil(rows / work.unit_rows)
    count = min(units, cluster.workers * ranges_each(rows * work.row_s / cluster.workers))
    at_once = min(count, cluster.workers)
    speed = min(1.0, cluster.cores / at_once)
    reading = min(cluster.worker_bytes_s, cluster.storage_bytes_s / at_once)
    row_s = max(work.row_s / speed, work.read_bytes / reading)
    nodes = max(1.0, math.log2(max(1.0, units / count)))
    result = rows / count * work.row_bytes + work.task_bytes + nodes * work.node_bytes
    taking = cluster.task_s + nodes * work.node_s
    free, link, start = [0.0] * at_once, 0.0, 0.0
    for number in range(count):
        stop = min(rows, math.ceil(units * (number + 1) / count) * work.unit_rows)
        ended = max(heapq.heappop(free), number * cluster.task_s) + (stop - start) * row_s
        heapq.heappush(free, ended)
        start, arrives = stop, ended + result / cluster.worker_bytes_s
        link = max(arrives, link + result / cluster.link_bytes_s) + taking
    if count == at_once:  # those that work longest have the cores to themselves in the end
        longest = math.ceil(units / count) * work.unit_rows * max(work.row_s, work.read_bytes / reading)
        worked = max(longest, rows * work.row_s / cluster.cores)
        link = min(link, worked + count * (result / cluster.link_bytes_s + taking))
    return cluster.latency_s + link


def stages(rows: int, costs: dict[str, Any], cluster: Cluster) -> dict[str, float]:
    """Seconds of each stage of a training run on 50 components of 784 features, with ten classes."""
    kernels = learned_kernels(AnchorSpec("learned"), None, rows, CLASSES)
    settings = learn_settings(rows, kernels, "diagonal", 0, CLASSES)
    check, moments, prepare, decide = (Pass(**costs[name]) for name in ("check", "moments", "prepare", "decide"))
    row_bytes = 4.0 * COMPONENTS  # of a prepared row
    digest = Pass(row_bytes * costs["hash_byte_s"], 10_485, row_bytes, 16 / 10_485)
    learned = min(rows, MOST_LEARNED)
    return {
        "check": simulated(check, rows, cluster),
        "moments": simulated(moments, rows, cluster),
        "prepare, twice": 2 * simulated(prepare, rows, cluster),
        "learn": settings.epochs * learned * max(costs["learn_row_s"], row_bytes / cluster.link_bytes_s),
        "digests, twice": 2 * simulated(digest, rows, cluster),
        "certify": simulated(decide, rows, cluster),
    }


def on_paper(costs: dict[str, Any], link_bytes_s: float, storage_bytes_s: float) -> list[dict[str, Any]]:
    """Stages for every number of rows and workers."""
    found = []
    for rows in ROWS:
        for workers in WORKERS:
            links = link_bytes_s, link_bytes_s
            cluster = Cluster(workers, *links, storage_bytes_s, costs["task_s"], costs["latency_s"])
            seconds = stages(rows, costs, cluster)
            record = {"rows": rows, "workers": workers, "seconds": seconds, "total_s": sum(seconds.values())}
            found.append(record | {"master_bytes": BASE_BYTES + rows * MASTER_ROW_BYTES})
    return found


def here(costs: dict[str, Any], name: str, rows: int, workers: int) -> float:
    """Seconds of a pass on this machine, whose storage is not the bottleneck."""
    links = costs["link_bytes_s"], costs["link_bytes_s"]
    cluster = Cluster(workers, *links, math.inf, costs["task_s"], costs["latency_s"], costs["two_processes"])
    return simulated(Pass(**costs[name]), rows, cluster)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--measure", action="store_true")
    parser.add_argument("--data", type=Path, default=ROOT / "results" / "mnist8m" / "mnist8m-600000.h5")
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--link-mbit", type=float, help="of each worker, in a network namespace of its own")
    parser.add_argument("--learn-us", type=float, default=16.0, help="of a row that is learned, by two threads")
    parser.add_argument("--link-gbit", type=float, default=10.0, help="of the simulated cluster")
    parser.add_argument("--storage-gb", type=float, default=10.0, help="a second, of the simulated cluster")
    arguments = parser.parse_args()
    if arguments.measure:
        from simulation import measure

        if arguments.link_mbit and os.geteuid():
            sys.exit("--link-mbit needs root: it creates network namespaces")
        found = measure(arguments.data, arguments.rows, arguments.workers, arguments.link_mbit)
        found["costs"]["learn_row_s"] = arguments.learn_us * 1e-6
    else:
        path = ROOT / "results" / "simulate.json"
        if not path.exists():
            sys.exit(f"{path} does not exist: measure the costs first, with --measure")
        found = {name: json.loads(path.read_text())[name] for name in ("costs", "checked")}
    for row in found["checked"]:
        row["simulated_s"] = here(found["costs"], row["work"], row["rows"], row["workers"])
        row["off"] = row["simulated_s"] / row["measured_s"] - 1.0
    most = max(abs(row["off"]) for row in found["checked"])
    for row in found["checked"]:
        print(
            "{work:8s} {workers} workers: {measured_s:6.2f} s, simulated {simulated_s:6.2f} s, {off:+.0%}".format(**row)
        )
    print(f"largest difference {most:.0%}, goal {WITHIN:.0%}: {'reached' if most <= WITHIN else 'MISSED'}")
    paper = on_paper(found["costs"], 1.25e8 * arguments.link_gbit, 1e9 * arguments.storage_gb)
    for row in paper:
        worst, master_gb = max(row["seconds"], key=row["seconds"].get), row["master_bytes"] / 1e9
        told = f"{row['rows']:.0e} rows, {row['workers']:5d} workers: {row['total_s']:8.0f} s, most of it {worst}"
        print(f"{told}; {master_gb:.1f} GB in the master")
    setting = {name: str(value) for name, value in vars(arguments).items()}
    print(f"written: {write('simulate', {'setting': setting, **found, 'paper': paper})}")


if __name__ == "__main__":
    main()
