"""Soak test: repeated training while processes are killed or frozen and links are cut; all models must have the same
bytes.

    python jobs/bench/soak.py [--data usps] [--rows 2000] [--worker-kills 30] [--master-kills 30] [--frozen 0]
                              [--cuts 0] [--workers 2] [--memory 1GB] [--seed 0] [--time-limit 600]

Each training run is a separate process with worker processes (`mllkm train --workers N`). In some, workers are killed
with SIGKILL at random times, or frozen permanently with SIGSTOP; in others the training process is killed and resumed.
For cut links, the workers are on hosts reached by cluster/ssh.sh: network namespaces whose link is down for seconds, or
longer than the timeout of a worker; this needs root.

A model with other bytes than those of one undisturbed training without workers is a failure. So are a process that
outlives its master, one whose peak memory exceeds the budget, a file that is left behind, and a master that runs longer
than the time limit. Writes results/soak.json, prints the row of docs/reliability.md, and exits with 1 after a failure.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import h5py
import psutil
from common import ROOT, load, write
from network_hosts import Hosts, network_hosts

from mllkm_scale.base.units import format_bytes, parse_bytes
from mllkm_scale.errors import ClusterError

LOOK_S = 0.2  # between two looks at the processes
ORPHANS_S = 30.0  # for workers to notice that their master has ended
SETTINGS = {
    "usps": ["--C", "10", "--scaling", "none", "--gammas", "0.095,0.0465,0.0116,0.0029", "--tol", "0.01"],
    "mnist": ["--n-components", "50", "--tol", "0.02"],
}
ROWS = {"usps": 2000, "mnist": 10_000}
MOST_MASTERS = 30  # of one training run; more count as a run that never ends
DISTURBED = ("worker", "master", "frozen", "cut")
SHORT_CUT_S, LONG_CUT_S = (2.0, 20.0), (70.0, 80.0)  # a worker is given up after 60 s
LONG_SHARE = 0.3
PHASES = {  # by the stems of files in the exchange folder, the most short-lived first
    "reference": "normalise",
    "predictors": "margins",
    "support": "scan",
    "scales": "solve",
    "prepared": "prepare",
}
PASSES = ("normalise", "margins", "scan")  # in which the workers are busy


class Master:
    """A training run under way, seen from outside: it and all its descendants, with the peak memory of each."""

    def __init__(self, command: list[str], folder: Path, path: str) -> None:
        self.folder = folder
        with (folder / "masters.log").open("ab") as log:
            environment = os.environ | {"OPENBLAS_NUM_THREADS": "1", "TMPDIR": str(folder), "PATH": path}
            self.process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
        self.started = time.monotonic()
        self.family: dict[int, psutil.Process] = {}
        self.peaks: Counter[str] = Counter()

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.started

    def watch(self, until_s: float) -> bool:
        """Wait until so many seconds after its start; returns whether it is still running."""
        while self.process.poll() is None:
            self.look()
            left_s = until_s - self.seconds
            if left_s <= 0:
                return True
            time.sleep(min(LOOK_S, left_s))
        return False

    def look(self) -> None:
        with contextlib.suppress(psutil.NoSuchProcess):
            own = psutil.Process(self.process.pid)
            self.family |= {child.pid: child for child in own.children(recursive=True)}
        kinds = {self.process.pid: "master"} | {pid: kind_of(process) for pid, process in self.family.items()}
        for pid, kind in kinds.items():
            if size := peak_bytes(pid):
                self.peaks[kind] = max(self.peaks[kind], size)

    def workers(self) -> list[int]:
        return [pid for pid, process in self.family.items() if kind_of(process) == "worker"]

    def kill(self) -> None:
        self.look()
        self.process.kill()
        self.process.wait(timeout=10)

    def orphans(self) -> int:
        """Descendants that outlive it, seen before or not; they are ended."""
        deadline = time.monotonic() + ORPHANS_S
        while (alive := processes_of(self.folder)) and time.monotonic() < deadline:
            time.sleep(LOOK_S)
        for process in alive:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        return len(alive)


def processes_of(folder: Path) -> list[psutil.Process]:
    """Processes whose temporary files go to the folder of the soak: masters and their descendants."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.pid != os.getpid() and process.environ().get("TMPDIR") == str(folder):
                found.append(process)
    return found


def kind_of(process: psutil.Process) -> str:
    with contextlib.suppress(psutil.Error):
        if process.is_running() and "spawn_main" in " ".join(process.cmdline()):
            return "worker"
    return "helper"


def peak_bytes(pid: int) -> int:
    with contextlib.suppress(OSError, StopIteration):
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        return 1024 * int(next(line for line in lines if line.startswith("VmHWM")).split()[1])
    return 0


def phase(run: Path) -> str:
    """The phase of a training run, from the files that exist."""
    if any(run.glob(".checkpoint*.partial")):
        return "checkpoint"
    shared = {path.name.split("-")[0] for path in (run / "exchange").glob("*")}
    for name, meaning in PHASES.items():
        if name in shared:
            return meaning
    return "end" if (run / "model.mllkm").exists() else "start"


class Soak:
    """All training runs of a soak test, and the failures."""

    def __init__(self, arguments: argparse.Namespace, folder: Path, hosts: Hosts | None) -> None:
        self.arguments, self.folder, self.hosts = arguments, folder, hosts
        self.chance = random.Random(arguments.seed)
        self.budget = parse_bytes(arguments.memory)
        self.expected, self.usual_s = b"", 0.0
        self.peaks: Counter[str] = Counter()
        self.trainings: list[dict[str, Any]] = []
        self.failures: list[str] = []

    def landed(self, kind: str) -> int:
        return sum(len(training["kills"]) for training in self.trainings if training["kind"] == kind)

    def run(self) -> None:
        for kind in ("local", "undisturbed"):
            self.train(kind, 0)
            if self.failures:
                return
            self.expected = (self.folder / "run-0" / "model.mllkm").read_bytes()
            self.usual_s = self.trainings[-1]["seconds"]
        given = self.arguments
        wanted = dict(zip(DISTURBED, (given.worker_kills, given.master_kills, given.frozen, given.cuts), strict=True))
        while left := {kind: n - self.landed(kind) for kind, n in wanted.items() if self.landed(kind) < n}:
            kind = self.chance.choice(sorted(left))
            self.train(kind, min(left[kind], self.chance.randint(2, 5)))
            if len(self.trainings) > 5 + sum(wanted.values()):
                self.fail("no process could be killed")
            if self.failures:
                return

    def train(self, kind: str, kills: int) -> None:
        """One training run, from its start to its model, with up to so many kills."""
        number = len(self.trainings)
        run = self.folder / f"run-{number}"
        record: dict[str, Any] = {"kind": kind, "kills": [], "masters": 0, "named_errors": 0}
        self.trainings.append(record)
        started = time.monotonic()
        for _ in range(MOST_MASTERS):
            first = [str(Path(sys.executable).parent)] + ([str(self.hosts.folder)] if self.hosts else [])
            master = Master(self.command(run, kind), self.folder, os.pathsep.join([*first, os.environ["PATH"]]))
            record["masters"] += 1
            killed = self.disturb(master, run, kind, kills - len(record["kills"]), record["kills"])
            code = self.outcome(master, f"training {number} ({kind})")
            if code == 0:
                record["seconds"] = time.monotonic() - started
                self.check(run, number, record)
                return
            if code is None:
                return
            if code == ClusterError.exit_code and kind in ("worker", "frozen"):  # a named error, which can be resumed
                record["named_errors"] += 1
            elif not killed:
                self.fail(f"training {number} ({kind}): a master ended with {code}")
                return
        self.fail(f"training {number} ({kind}): {MOST_MASTERS} masters did not finish it")

    def outcome(self, master: Master, name: str) -> int | None:
        """The exit code of a master, after all its processes have ended; None if it had to be ended."""
        hung = master.watch(self.arguments.time_limit)
        if hung:
            self.fail(f"{name}: a master ran longer than {self.arguments.time_limit:g} s")
            master.kill()
        for kind, size in master.peaks.items():
            self.peaks[kind] = max(self.peaks[kind], size)
            if size > self.budget:
                self.fail(f"{name}: a {kind} reached {format_bytes(size)}")
        if orphans := master.orphans():
            self.fail(f"{name}: {orphans} processes outlived their master")
        return None if hung else master.process.returncode

    def command(self, run: Path, kind: str) -> list[str]:
        workers, budget = str(0 if kind == "local" else self.arguments.workers), self.arguments.memory
        cluster, script, file = ["--workers", workers], [], str(run.with_suffix(".json"))
        if kind == "cut":
            assert self.hosts is not None
            place = ["-h", str(self.hosts.file), "-i", self.hosts.interface, "-f", file, "-m", budget]
            cluster, script = ["--scheduler-file", file], [str(ROOT / "cluster" / "ssh.sh"), *place, "--"]
        options = ["--memory", budget, "--jobs", "1", "--progress", "plain"]
        resume = ["--resume"] if (run / "checkpoint.npz").exists() else []
        data, settings = str(self.folder / "train.h5"), SETTINGS[self.arguments.data]
        return [*script, "mllkm", "train", data, "--out", str(run), *cluster, *options, *settings, *resume]

    def disturb(self, master: Master, run: Path, kind: str, kills: int, landed: list[dict[str, Any]]) -> bool:
        """Kill at random times; returns whether the master was killed. A master may also end before that time."""
        if kind == "master" and kills > 0:
            # Early times are more likely, because a resumed training run ends sooner.
            if master.watch(self.chance.betavariate(1, 2) * self.usual_s):
                landed.append({"at_s": master.seconds, "phase": phase(run)})
                master.kill()
                return True
        elif kind in DISTURBED:
            for _ in range(kills):
                if not master.watch(master.seconds + self.chance.uniform(0.1, 0.5) * self.usual_s):
                    break
                if self.chance.random() < 0.5:
                    self.await_pass(master, run)
                at = {"at_s": master.seconds, "phase": phase(run)}
                landed += [at] * (self.cut(master) if kind == "cut" else self.signal_workers(master, kind))
                if kind == "frozen":  # no worker replaces it
                    break
        return False

    def signal_workers(self, master: Master, kind: str) -> int:
        """Kill one or two workers, or freeze all but one; returns how many."""
        workers, signalled = master.workers(), 0
        number = len(workers) - 1 if kind == "frozen" else min(len(workers), self.chance.choice((1, 1, 1, 2)))
        for pid in self.chance.sample(workers, max(0, number)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP if kind == "frozen" else signal.SIGKILL)
                signalled += 1
        return signalled

    def cut(self, master: Master) -> int:
        """Cut the link of a host for a while."""
        assert self.hosts is not None
        address = self.chance.choice(self.hosts.addresses)
        length_s = self.chance.uniform(*(LONG_CUT_S if self.chance.random() < LONG_SHARE else SHORT_CUT_S))
        self.hosts.set_link(address, "down")
        master.watch(master.seconds + length_s)
        self.hosts.set_link(address, "up")
        return 1

    def await_pass(self, master: Master, run: Path) -> None:
        """Wait until the workers are busy."""
        deadline = time.monotonic() + self.usual_s
        while phase(run) not in PASSES and master.process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.02)

    def check(self, run: Path, number: int, record: dict[str, Any]) -> None:
        """Check the model, and that no other files are left."""
        record["same_bytes"] = not self.expected or (run / "model.mllkm").read_bytes() == self.expected
        if not record["same_bytes"]:
            self.fail(f"training {number} ({record['kind']}): the model has other bytes")
        if left := [path.name for path in run.iterdir() if path.name == "exchange" or path.name.startswith(".")]:
            self.fail(f"training {number} ({record['kind']}): it left {', '.join(left)}")
        kills = ", ".join(f"{kill['phase']} {kill['at_s']:.0f} s" for kill in record["kills"]) or "none"
        print(f"training {number} ({record['kind']}): {record['seconds']:.0f} s, kills: {kills}", flush=True)

    def fail(self, what: str) -> None:
        self.failures.append(what)
        print(f"FAILURE: {what}", flush=True)

    def record(self) -> dict[str, Any]:
        kills = {kind: [kill for t in self.trainings if t["kind"] == kind for kill in t["kills"]] for kind in DISTURBED}
        return {
            "setting": vars(self.arguments),
            "kills": {kind: len(found) for kind, found in kills.items()},
            "kills_by_phase": {kind: Counter(kill["phase"] for kill in found) for kind, found in kills.items()},
            "mismatches": sum(not training.get("same_bytes", True) for training in self.trainings),
            "named_errors": sum(training["named_errors"] for training in self.trainings),
            "peak_bytes": dict(self.peaks),
            "budget_bytes": self.budget,
            "failures": self.failures,
            "trainings": self.trainings,
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", choices=sorted(SETTINGS), default="usps")
    parser.add_argument("--rows", type=int, default=0, help="first training rows: 2000 of usps, 10000 of mnist")
    parser.add_argument("--worker-kills", type=int, default=30)
    parser.add_argument("--master-kills", type=int, default=30)
    parser.add_argument("--frozen", type=int, default=0, help="workers to freeze, all but one of a training run")
    parser.add_argument("--cuts", type=int, default=0, help="links of hosts to cut")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--memory", default="1GB", help="budget of every process")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--time-limit", type=float, default=600.0, help="seconds after which a master counts as hung")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that hosts and folders are removed
    arguments.rows = arguments.rows or ROWS[arguments.data]
    arrays = load(arguments.data)
    with tempfile.TemporaryDirectory() as folder:
        with h5py.File(Path(folder) / "train.h5", "w") as file:
            file["X"], file["y"] = arrays["X"][: arguments.rows], arrays["y"][: arguments.rows]
        del arrays
        started = time.perf_counter()
        hosts_of = network_hosts(arguments.workers, Path(folder) / "hosts") if arguments.cuts else nullcontext()
        with hosts_of as hosts:
            soak = Soak(arguments, Path(folder), hosts)
            soak.run()
        record = soak.record() | {"seconds": time.perf_counter() - started}
        if soak.failures:
            print((Path(folder) / "masters.log").read_text(errors="replace")[-10_000:])
    peaks = ", ".join(f"{name} {format_bytes(size)}" for name, size in sorted(soak.peaks.items()))
    print(
        f"{len(soak.trainings)} trainings in {record['seconds']:.0f} s, {record['mismatches']} models with other bytes,"
        f" {record['named_errors']} named errors; peaks: {peaks} of {arguments.memory}"
    )
    print("| what | how many | trainings | other bytes | hangs, orphans, files left, peaks |\n| --- |" + " ---: |" * 4)
    for kind, name in zip(DISTURBED, ("workers killed", "masters killed", "workers frozen", "links cut"), strict=True):
        if mine := [training for training in soak.trainings if training["kind"] == kind]:
            other = sum(not training.get("same_bytes", True) for training in mine)
            counts = record["kills"][kind], len(mine), other, len(soak.failures) - record["mismatches"]
            print(f"| {name} | {' | '.join(map(str, counts))} |")
    print(f"kills by phase: { {kind: dict(found) for kind, found in record['kills_by_phase'].items()} }")
    print(f"written: {write('soak', record)}")
    if soak.failures:
        sys.exit(f"{len(soak.failures)} failures")


if __name__ == "__main__":
    main()
