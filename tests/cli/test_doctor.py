"""The doctor: what it finds on machines that lack something, and that it is quick and leaves nothing behind."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import namedtuple
from collections.abc import Callable, Iterator
from pathlib import Path

import dask.config
import psutil
import pytest
from click.testing import Result

from mllkm_scale.cli import machine_checks as doctor
from mllkm_scale.cli.machine_checks import Checkup, Finding, examine
from mllkm_scale.run.job.cluster import ClusterSpec

Run = Callable[..., Result]


def only(findings: Iterator[Finding]) -> Finding:
    (found,) = findings
    return found


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same measurements, but short."""
    monkeypatch.setattr(doctor, "TIMED_S", 0.01)
    monkeypatch.setattr(doctor, "MOST_BYTES", 2**20)
    monkeypatch.setattr(doctor, "BLOCK_BYTES", 2**18)


def test_it_tells_every_subject_and_ends_well(mllkm: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data.h5").write_bytes(b"x" * 1000)
    result = mllkm("doctor", "--json", "--data", tmp_path / "data.h5")
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    subjects = {finding["subject"] for finding in told["findings"]}
    assert subjects >= {"versions", "cores", "memory", "BLAS", "products", "scratch folder", "configuration", "data"}
    assert told["problems"] == 0
    assert all(finding["remedy"] for finding in told["findings"] if finding["level"] != "ok")
    assert [file.name for file in tmp_path.iterdir()] == ["data.h5"]


def test_a_problem_is_told_with_its_remedy_and_is_the_exit_code(mllkm: Run, tmp_path: Path) -> None:
    result = mllkm("doctor", "--data", tmp_path / "absent.h5")
    assert result.exit_code == 1
    line = next(line for line in result.stdout.splitlines() if line.startswith("problem"))
    assert line.endswith("absent.h5 does not exist: check the path")
    assert result.stdout.splitlines()[-1].startswith("1 problem,")


def test_a_check_that_breaks_is_a_problem_and_the_others_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*arguments: object) -> Iterator[Finding]:
        raise ImportError("no such library")

    monkeypatch.setattr("mllkm_scale.cli.machine_checks.check_blas", broken)
    found = {finding.subject: finding for finding in examine(Checkup(tmp_path, 10**9, 1))}
    assert found["BLAS"].level == "problem"
    assert "no such library" in found["BLAS"].text
    assert found["products"].text.count("GFlop/s") == 1


def test_a_bad_configuration_is_a_problem_that_names_its_place(mllkm: Run) -> None:
    with dask.config.set({"mllkm.memory-bugdet": "4GB"}):
        result = mllkm("doctor", "--json")
    found = [f for f in json.loads(result.stdout)["findings"] if f["subject"] == "configuration"]
    assert result.exit_code == 1
    assert (found[0]["level"], found[0]["remedy"]) == ("problem", "did you mean memory-budget?")


def test_what_is_configured_is_looked_at(mllkm: Run, tmp_path: Path) -> None:
    with dask.config.set({"mllkm.scratch-dir": str(tmp_path / "absent"), "mllkm.memory-budget": "1TB"}):
        told = json.loads(mllkm("doctor", "--json").stdout)["findings"]
    found = {finding["subject"]: finding for finding in told}
    assert (found["scratch folder"]["level"], found["memory"]["level"]) == ("problem", "problem")
    assert "scratch-dir" in found["scratch folder"]["remedy"]


def test_more_threads_than_a_container_allows_are_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dask.system.cpu_count", lambda: 2)
    monkeypatch.setattr(doctor, "n_threads", lambda n_jobs: 8)
    found = only(doctor.check_cores(-1))
    assert (found.level, "set n-jobs to 2" in found.remedy) == ("warning", True)
    assert "2 by the limit of its container" in found.text


@pytest.mark.parametrize(
    ("budget", "available", "limit", "level"),
    [(2, 8, 16, "ok"), (2, 1, 16, "warning"), (20, 8, 16, "problem"), (2, 8, 1, "problem")],
)
def test_a_budget_beyond_the_memory_is_told(
    monkeypatch: pytest.MonkeyPatch, budget: int, available: int, limit: int, level: str
) -> None:
    memory = namedtuple("memory", "total available")
    monkeypatch.setattr(psutil, "virtual_memory", lambda: memory(16 * 10**9, available * 10**9))
    monkeypatch.setattr("distributed.system.memory_limit", lambda: limit * 10**9)
    found = only(doctor.check_memory(budget * 10**9))
    assert found.level == level
    suggested = f"{int(7 * min(available, limit)) / 10:.1f} GB" if min(available, limit) > 1 else "700.0 MB"
    assert suggested in found.in_words


def test_speed_is_measured_on_one_thread_and_on_several() -> None:
    assert 0.01 < doctor.giga_operations_per_s(1) < 1e4
    assert doctor.giga_operations_per_s(2) > 0.01


def test_threads_that_gain_nothing_are_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "n_threads", lambda n_jobs: 4)
    speeds = {1: 30.0, 4: 31.0}
    monkeypatch.setattr(doctor, "giga_operations_per_s", speeds.__getitem__)
    assert only(doctor.check_products()).level == "warning"
    speeds[4] = 100.0
    assert only(doctor.check_products()).level == "ok"
    speeds[1] = 0.3
    assert "BLAS" in only(doctor.check_products()).remedy


def test_a_scratch_folder_in_memory_or_too_small_is_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "write_and_read_bytes_per_s", lambda folder, size: (1e9, 1e9))
    monkeypatch.setattr(doctor, "file_system", lambda folder: "tmpfs")
    assert "in memory" in next(doctor.check_folders(tmp_path, 10**9)).text
    monkeypatch.setattr(doctor, "file_system", lambda folder: "ext4")
    usage = shutil.disk_usage(tmp_path)._replace(free=10**8)
    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda folder: usage)
    assert next(doctor.check_folders(tmp_path, 10**9)).remedy.startswith("free space")
    assert next(doctor.check_folders(tmp_path, 10**7)).level == "ok"
    monkeypatch.setattr(doctor, "write_and_read_bytes_per_s", lambda folder, size: (1e6, 1e9))
    assert "slow" in next(doctor.check_folders(tmp_path, 10**7)).text


def test_the_file_that_is_written_is_bounded_and_has_no_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    write = os.fsync

    def look(descriptor: int) -> None:
        seen.append(os.fstat(descriptor).st_size)
        assert list(tmp_path.iterdir()) == []
        write(descriptor)

    monkeypatch.setattr(doctor.os, "fsync", look)
    doctor.write_and_read_bytes_per_s(tmp_path, 2**20)
    assert seen == [2**20]


def test_the_speed_of_a_zarr_group_is_that_of_its_files(tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / f"c{number}").write_bytes(b"x" * 10_000)
    found = only(doctor.check_data(tmp_path))
    assert (found.level, "30.0 kB" in found.text) == ("ok", True)


def test_a_cache_that_cannot_be_written_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_is_writable", lambda folder: False)
    found = only(doctor.check_numba_cache())
    assert (found.level, "NUMBA_CACHE_DIR" in found.remedy) == ("warning", True)


def test_an_extra_that_is_not_installed_is_no_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_version", lambda name: None)
    found = list(doctor.check_extras())
    assert {finding.level for finding in found} == {"ok"}
    assert 'pip install "mllkm-scale[onnx]"' in found[0].text


def test_a_scheduler_that_is_not_there_is_a_problem_within_the_time(mllkm: Run) -> None:
    begun_s = time.monotonic()
    (found,) = doctor.check_cluster(ClusterSpec(kind="address", address="tcp://127.0.0.1:9"), 1.0)
    assert time.monotonic() - begun_s < 10
    assert found.level == "problem"
    assert "is not reached" in found.text
    assert found.remedy


def test_workers_that_would_be_started_are_counted() -> None:
    assert only(doctor.check_cluster(ClusterSpec(kind="local", workers=1), 1.0)).level == "ok"
    assert only(doctor.check_cluster(ClusterSpec(kind="local", workers=10_000), 1.0)).level == "warning"


@pytest.fixture(scope="module")
def scheduler() -> Iterator[str]:
    """A cluster of one worker in this process."""
    from distributed import LocalCluster

    with LocalCluster(
        n_workers=1, threads_per_worker=1, processes=False, protocol="tcp", dashboard_address=":0"
    ) as cluster:
        yield cluster.scheduler_address


def test_a_cluster_is_reached_and_fits(scheduler: str, mllkm: Run) -> None:
    told = json.loads(mllkm("doctor", "--scheduler", scheduler, "--json").stdout)["findings"]
    found = {finding["subject"]: finding for finding in told}
    assert found["cluster"]["text"].startswith("1 worker, 1 thread, ")
    assert found["versions of workers"]["text"] == "as here"
    assert found["files of workers"]["level"] == "ok"


def test_workers_that_differ_or_do_not_see_the_folder_are_told(scheduler: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "__version__", "9.9")
    monkeypatch.setattr(doctor.os.path, "exists", os.path.ismount)
    found = {f.subject: f for f in doctor.check_cluster(ClusterSpec(kind="address", address=scheduler), 5.0)}
    assert found["versions of workers"].level == "problem"
    assert "9.9 here" in found["versions of workers"].text
    assert found["files of workers"].text.startswith("1 of 1 workers do not see")


def test_a_worker_that_does_not_answer_is_a_problem_within_the_time(
    scheduler: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask = doctor._within
    monkeypatch.setattr(doctor, "_within", lambda timeout_s, call: ask(0.05, lambda: time.sleep(0.5)))
    (found,) = doctor.check_cluster(ClusterSpec(kind="address", address=scheduler), 5.0)
    assert (found.level, "do not answer" in found.text) == ("problem", True)


def test_ctrl_c_ends_it_with_one_line(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "mllkm_scale", "doctor"], cwd=tmp_path, stderr=subprocess.PIPE, stdout=subprocess.PIPE
    )
    time.sleep(3.0)  # it has begun by then, even on a busy machine
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=30)
    assert process.returncode in (0, 130)
    assert b"Traceback" not in stderr
    assert list(tmp_path.iterdir()) == []
