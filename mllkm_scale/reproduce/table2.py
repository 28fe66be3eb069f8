"""The paper's Table 2: four UCI sets, random splits of 70/30, C = 100; a line for every method and data set.

A task is one split of one data set: all methods are trained on its 70 % and tested on the rest, and the record is
kept. Tasks run in processes of their own, one a core, with one thread each.
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
from mllkm_scale.reproduce.methods import GROUPS, table2_methods
from mllkm_scale.reproduce.paper import TABLE2, Printed
from mllkm_scale.reproduce.parts import Parts, Record
from mllkm_scale.reproduce.significance import PairedTest, Ranks, holm, paired_test, ranks
from mllkm_scale.reproduce.splits import TRAIN_SHARE

__all__ = ["Comparison", "Row", "Setting", "Table", "assemble", "run"]

Samples = tuple[Array, Array]


@dataclass(frozen=True)
class Setting:
    """What the table is made of."""

    splits: int = 10
    first_seed: int = 0
    local_bias: float | str = "auto"


@dataclass(frozen=True)
class Row:
    """A method on a data set: an entry a split."""

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
class Comparison:
    """The best MLLKM of a data set beside a method of the other groups, over the same splits."""

    data: str
    ours: str
    method: str
    test: PairedTest
    holm_p: float  # of the corrected t-test, for the number of methods that are compared with


@dataclass(frozen=True)
class Table:
    """All rows, what is significant, and the ranks over the data sets."""

    setting: Setting
    rows: tuple[Row, ...]
    comparisons: tuple[Comparison, ...]
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
    setting: Setting,
    parts: Parts,
    jobs: int,
    tell: Callable[[str], None] = lambda line: None,
) -> Table:
    """Train and test every method on every split of every data set, or take what was kept of it."""
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
    from mllkm_scale.reproduce.measure import tested
    from mllkm_scale.reproduce.splits import random_split

    split = random_split(X, y, seed)
    record: Record = {}
    with one_blas_thread():
        for method in table2_methods(local_bias):
            machine = method.make(len(split.X))
            record[method.name] = tested(machine, split)
            record[method.name]["kernels"], record[method.name]["support"] = method.size(machine)
    return record


def assemble(records: Mapping[str, Sequence[Any]], setting: Setting) -> Table:
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


def _comparisons(rows: list[Row], names: list[str]) -> Iterator[Comparison]:
    """The MLLKM with the best mean against every method of the other groups."""
    for name in names:
        ours = max((r for r in rows if r.data == name and r.group == GROUPS[0]), key=lambda row: row.accuracy.mean())
        others = [row for row in rows if row.data == name and row.group != GROUPS[0]]
        tests = [paired_test(ours.accuracy, other.accuracy, 1.0 - TRAIN_SHARE) for other in others]
        corrected = holm(np.array([test.corrected_t_p for test in tests]))
        for other, test, p in zip(others, tests, corrected, strict=True):
            yield Comparison(name, ours.method, other.method, test, float(p))


def _seeds(setting: Setting) -> range:
    return range(setting.first_seed, setting.first_seed + setting.splits)


def _part(name: str, seed: int) -> str:
    return f"{name}-{seed}"


def _part_setting(setting: Setting, X: Array, y: Array) -> Record:
    """What a record depends on, beside the version: the content of the data as well."""
    import hashlib

    content = hashlib.sha256(np.ascontiguousarray(X).tobytes() + np.ascontiguousarray(y).tobytes()).hexdigest()
    return {"local_bias": setting.local_bias, "shape": list(X.shape), "content": content[:16]}


def _best(record: Record) -> str:
    found = max(record, key=lambda method: record[method]["accuracy"])
    return f"{record[found]['accuracy']:.1f} % at best, by {found}"


def _computed(
    samples: Mapping[str, Samples], todo: list[tuple[str, int]], setting: Setting, jobs: int
) -> Generator[tuple[str, int, Record], None, None]:
    """The records of these tasks, in the order in which they are done."""
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
        except BaseException:  # a split takes up to a minute, which nobody waits for after Ctrl-C
            for child in set(multiprocessing.active_children()) - before:
                child.terminate()
            pool.shutdown(cancel_futures=True)  # waits until they are gone
            raise


def _ignore_interrupts() -> None:
    """Ctrl-C reaches all processes of a terminal: the first of them ends the others."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
