"""The paper's Table 2: four UCI data sets, random splits of 70/30, C = 100; a line for every method and data set.

A task is one split of one data set: all methods are trained on its 70 % and tested on the rest, and the record is kept.
Tasks run in separate processes, one per core, with one thread each. `TABLE2` holds the printed figures of the paper:
mean and standard deviation over its ten splits.
"""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import numpy as np

from mllkm_scale.base.arrays import Array
from mllkm_scale.reproduce.measure import TRAIN_SHARE
from mllkm_scale.reproduce.methods import GROUPS, table2_methods
from mllkm_scale.reproduce.parts import Parts, Record
from mllkm_scale.reproduce.significance import PairedTest, Ranks, holm, paired_test, ranks

__all__ = ["TABLE2", "PairedComparison", "Printed", "Row", "Table", "TableSetting", "assemble", "run"]

Samples = tuple[Array, Array]


@dataclass(frozen=True)
class Printed:
    """A row of the paper's table: accuracy in percent, inference time in ms, kernels and support vectors."""

    accuracy: float
    deviation: float
    time_ms: float
    kernels: float
    support: float


TABLE2: dict[str, dict[str, Printed]] = {
    "ionosphere": {
        "MLLKM (Gaussian)": Printed(94.0, 2.3, 1.0, 22.5, 1),
        "MLLKM (Square)": Printed(92.9, 2.8, 2.4, 25.9, 1),
        "MLLKM (Component Gaussian)": Printed(91.7, 1.1, 8.0, 27.0, 1),
        "MLLKM (Component Square)": Printed(91.4, 2.4, 1.9, 25.3, 1),
        "SAG": Printed(79.1, 4.3, 0.0, 1, 1),
        "LLSVM": Printed(87.3, 2.2, 1.5, 32, 1),
        "LaSVM (Gaussian)": Printed(94.3, 2.2, 1.2, 1, 53.3),
        "SimpleMKL": Printed(95.1, 2.2, 18.9, 9.5, 159.7),
        "SequentialMKL": Printed(93.3, 3.1, 55.2, 15.9, 141.8),
    },
    "sonar": {
        "MLLKM (Gaussian)": Printed(81.0, 2.8, 0.6, 17.6, 1),
        "MLLKM (Square)": Printed(80.2, 3.5, 0.8, 18.4, 1),
        "MLLKM (Component Gaussian)": Printed(77.8, 2.4, 4.9, 19.8, 1),
        "MLLKM (Component Square)": Printed(80.2, 3.0, 1.0, 23.1, 1),
        "SAG": Printed(62.5, 5.9, 0.0, 1, 1),
        "LLSVM": Printed(67.8, 5.4, 0.5, 32, 1),
        "LaSVM (Gaussian)": Printed(79.0, 3.5, 0.5, 1, 73.6),
        "SimpleMKL": Printed(84.6, 4.4, 10.7, 8.5, 138.1),
        "SequentialMKL": Printed(86.3, 2.7, 15.4, 11.2, 124.5),
    },
    "heart": {
        "MLLKM (Gaussian)": Printed(81.6, 3.0, 0.6, 26.0, 1),
        "MLLKM (Square)": Printed(81.4, 4.1, 0.5, 27.1, 1),
        "MLLKM (Component Gaussian)": Printed(82.2, 4.9, 2.2, 27.3, 1),
        "MLLKM (Component Square)": Printed(81.1, 2.8, 0.8, 26.8, 1),
        "SAG": Printed(83.0, 3.5, 0.1, 1, 1),
        "LLSVM": Printed(80.4, 4.1, 0.3, 32, 1),
        "LaSVM (Gaussian)": Printed(79.6, 2.4, 0.5, 1, 74.7),
        "SimpleMKL": Printed(80.2, 2.9, 10.6, 7.4, 163.2),
        "SequentialMKL": Printed(80.0, 5.3, 12.1, 8.0, 164.9),
    },
    "diabetes": {
        "MLLKM (Gaussian)": Printed(75.3, 3.2, 0.9, 24.0, 1),
        "MLLKM (Square)": Printed(74.9, 3.6, 0.8, 28.1, 1),
        "MLLKM (Component Gaussian)": Printed(76.0, 4.1, 2.0, 29.6, 1),
        "MLLKM (Component Square)": Printed(72.6, 3.5, 1.1, 38.6, 1),
        "SAG": Printed(66.1, 9.0, 0.0, 1, 1),
        "LLSVM": Printed(74.2, 2.7, 2.3, 32, 1),
        "LaSVM (Gaussian)": Printed(77.1, 3.2, 3.6, 1, 141.9),
        "SimpleMKL": Printed(69.5, 4.1, 8.9, 3.3, 223.5),
        "SequentialMKL": Printed(69.5, 2.8, 55.0, 7.1, 216.6),
    },
}


@dataclass(frozen=True)
class TableSetting:
    """Settings of the table."""

    splits: int = 10
    first_seed: int = 0
    local_bias: float | str = "auto"


@dataclass(frozen=True)
class Row:
    """A method on a data set: one entry per split."""

    data: str
    method: str
    group: str
    accuracy: Array  # percent
    predict_ms: Array  # of all test rows
    train_s: Array
    kernels: Array
    support: Array
    paper: Printed | None


@dataclass(frozen=True)
class PairedComparison:
    """The best MLLKM of a data set beside a method of the other groups, over the same splits."""

    data: str
    ours: str
    method: str
    test: PairedTest
    holm_p: float  # of the corrected t-test, for the number of methods that are compared with


@dataclass(frozen=True)
class Table:
    """All rows, the significance tests, and the ranks over the data sets."""

    setting: TableSetting
    rows: tuple[Row, ...]
    comparisons: tuple[PairedComparison, ...]
    methods: tuple[str, ...]
    ranks: Ranks | None  # for two data sets or more

    def of(self, data: str) -> list[Row]:
        """The rows of one data set."""
        return [row for row in self.rows if row.data == data]

    @property
    def data(self) -> list[str]:
        """Names of the data sets."""
        return list(dict.fromkeys(row.data for row in self.rows))


def run(
    samples: Mapping[str, Samples],
    setting: TableSetting,
    parts: Parts,
    jobs: int,
    tell: Callable[[str], None] = lambda line: None,
) -> Table:
    """Train and test every method on every split of every data set, or use stored records."""
    todo = [
        (name, seed)
        for name, (X, y) in samples.items()
        for seed in _seeds(setting)
        if parts.found(_part(name, seed), _part_setting(setting, X, y)) is None
    ]
    done = len(samples) * setting.splits - len(todo)
    if done:
        tell(f"{done} of {done + len(todo)} splits are there already, in {parts.folder}")
    with closing(_computed(samples, todo, setting, jobs)) as computed:
        for name, seed, record in computed:
            parts.keep(_part(name, seed), _part_setting(setting, *samples[name]), record)
            done += 1
            tell(f"{done}/{len(samples) * setting.splits}  {name}, split {seed}: {_best(record)}")
    records = {
        name: [parts.found(_part(name, seed), _part_setting(setting, X, y)) for seed in _seeds(setting)]
        for name, (X, y) in samples.items()
    }
    return assemble(records, setting)


def evaluate_split(X: Array, y: Array, seed: int, local_bias: float | str) -> Record:
    """All methods on one split: a record each, by name."""
    from mllkm_scale.base.threads import one_blas_thread
    from mllkm_scale.reproduce.measure import random_split, tested

    split = random_split(X, y, seed)
    record: Record = {}
    with one_blas_thread():
        for method in table2_methods(local_bias):
            machine = method.make(len(split.X))
            record[method.name] = tested(machine, split)
            record[method.name]["kernels"], record[method.name]["support"] = method.size(machine)
    return record


def assemble(records: Mapping[str, Sequence[Any]], setting: TableSetting) -> Table:
    """The table from the records of all splits of every data set."""
    rows = []
    for name, found in records.items():
        for method in table2_methods(setting.local_bias):
            entries = [record[method.name] for record in found]

            def column(key: str, entries: list[Record] = entries) -> Array:
                return np.array([entry[key] for entry in entries], dtype=np.float64)

            paper = TABLE2.get(name, {}).get(method.name)
            figures = column("accuracy"), 1e3 * column("predict_s"), column("train_s")
            rows.append(Row(name, method.name, method.group, *figures, column("kernels"), column("support"), paper))
    methods = tuple(dict.fromkeys(row.method for row in rows))
    means = np.array([[row.accuracy.mean() for row in rows if row.data == name] for name in records])
    comparisons = tuple(_comparisons(rows, list(records))) if setting.splits > 1 else ()
    return Table(setting, tuple(rows), comparisons, methods, ranks(means) if len(records) > 1 else None)


def _comparisons(rows: list[Row], names: list[str]) -> Iterator[PairedComparison]:
    """The MLLKM with the best mean against every method of the other groups."""
    for name in names:
        ours = max((r for r in rows if r.data == name and r.group == GROUPS[0]), key=lambda row: row.accuracy.mean())
        others = [row for row in rows if row.data == name and row.group != GROUPS[0]]
        tests = [paired_test(ours.accuracy, other.accuracy, 1.0 - TRAIN_SHARE) for other in others]
        corrected = holm(np.array([test.corrected_t_p for test in tests]))
        for other, test, p in zip(others, tests, corrected, strict=True):
            yield PairedComparison(name, ours.method, other.method, test, float(p))


def _seeds(setting: TableSetting) -> range:
    return range(setting.first_seed, setting.first_seed + setting.splits)


def _part(name: str, seed: int) -> str:
    return f"{name}-{seed}"


def _part_setting(setting: TableSetting, X: Array, y: Array) -> Record:
    """The settings of a record besides the version, including the content of the data."""
    import hashlib

    content = hashlib.sha256(np.ascontiguousarray(X).tobytes() + np.ascontiguousarray(y).tobytes()).hexdigest()
    return {"local_bias": setting.local_bias, "shape": list(X.shape), "content": content[:16]}


def _best(record: Record) -> str:
    found = max(record, key=lambda method: record[method]["accuracy"])
    return f"{record[found]['accuracy']:.1f} % at best, by {found}"


def _computed(
    samples: Mapping[str, Samples], todo: list[tuple[str, int]], setting: TableSetting, jobs: int
) -> Generator[tuple[str, int, Record], None, None]:
    """The records of these tasks, in the order of completion."""
    if jobs == 1 or len(todo) < 2:
        for name, seed in todo:
            yield name, seed, evaluate_split(*samples[name], seed, setting.local_bias)
        return
    before = set(multiprocessing.active_children())
    spawn = multiprocessing.get_context("spawn")  # forks of a process with threads may hang
    with ProcessPoolExecutor(min(jobs, len(todo)), mp_context=spawn, initializer=_ignore_interrupts) as pool:
        tasks = {
            pool.submit(evaluate_split, *samples[name], seed, setting.local_bias): (name, seed) for name, seed in todo
        }
        try:
            for task in as_completed(tasks):
                yield *tasks[task], task.result()
        except BaseException:  # a split takes up to a minute: do not wait for it after Ctrl-C
            for child in set(multiprocessing.active_children()) - before:
                child.terminate()
            pool.shutdown(cancel_futures=True)  # waits until they are gone
            raise


def _ignore_interrupts() -> None:
    """Ctrl-C reaches all processes of a terminal: the first of them ends the others."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
