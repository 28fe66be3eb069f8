from __future__ import annotations

import subprocess
import sys
from dataclasses import FrozenInstanceError, fields
from pathlib import Path
from typing import Any

import pytest

from mllkm_scale.errors import ParameterError
from mllkm_scale.run.job.cluster import KINDS, ClusterSpec

USED = {
    "none": {},
    "local": {"workers": 2},
    "address": {"address": "tcp://host:8786"},
    "scheduler-file": {"scheduler_file": Path("scheduler.json")},
    "slurm": {"workers": 2, "walltime": "04:00:00"},
}
OTHER: dict[str, Any] = {
    "workers": 3,
    "threads_per_worker": 2,
    "address": "tcp://host:8786",
    "scheduler_file": Path("scheduler.json"),
    "queue": "long",
    "account": "physics",
    "walltime": "01:00:00",
    "directives": ("--constraint=fast",),
    "interface": "ib0",
    "local_directory": "/scratch",
    "dashboard_address": None,
    "insecure": True,
    "start_timeout": 60.0,
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_is_complete_with_what_it_needs(kind: str) -> None:
    spec = ClusterSpec(kind, **USED[kind])
    with pytest.raises(FrozenInstanceError):
        spec.kind = "none"  # type: ignore[misc]


@pytest.mark.parametrize(("kind", "field"), [(kind, field) for kind, used in USED.items() for field in used])
def test_what_a_kind_needs_is_named(kind: str, field: str) -> None:
    without = {name: value for name, value in USED[kind].items() if name != field}
    with pytest.raises(ParameterError, match=f"kind '{kind}' needs {field}: give "):
        ClusterSpec(kind, **without)


@pytest.mark.parametrize("kind", KINDS)
def test_a_field_is_either_of_use_or_refused(kind: str) -> None:
    assert set(OTHER) == {field.name for field in fields(ClusterSpec)} - {"kind"}
    useless = {
        "none": set(OTHER),
        "local": {"address", "scheduler_file", "queue", "account", "walltime", "directives", "interface"}
        | {"insecure", "start_timeout"},
        "address": set(OTHER) - {"address"},
        "scheduler-file": set(OTHER) - {"scheduler_file"},
        "slurm": {"address", "scheduler_file"},
    }[kind]
    for name, value in OTHER.items():
        given = USED[kind] | {name: value}
        if name in useless:
            with pytest.raises(ParameterError, match=f"{name}=.* does nothing for a cluster of kind '{kind}'"):
                ClusterSpec(kind, **given)
        else:
            assert getattr(ClusterSpec(kind, **given), name) == value


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("tcp://10.0.0.7:8786", "tcp://10.0.0.7:8786"),
        ("tls://node-7.cluster:8786", "tls://node-7.cluster:8786"),
        ("ucx://node7:13337", "ucx://node7:13337"),
        ("node7:8786", "tcp://node7:8786"),
        ("[fe80::1]:8786", "tcp://[fe80::1]:8786"),
    ],
)
def test_an_address_without_protocol_is_one_of_tcp(given: str, meant: str) -> None:
    assert ClusterSpec("address", address=given).address == meant


def test_paths_and_lists_are_taken_too() -> None:
    assert ClusterSpec("scheduler-file", scheduler_file="a.json").scheduler_file == Path("a.json")  # type: ignore[arg-type]
    assert ClusterSpec("slurm", workers=1, walltime="1-00:00:00", directives=["-C fast"]).directives == ("-C fast",)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("kind", "field", "value"),
    [
        ("local", "workers", 0),
        ("local", "workers", -1),
        ("local", "workers", 2.0),
        ("local", "workers", True),
        ("local", "threads_per_worker", 0),
        ("local", "threads_per_worker", None),
        ("local", "local_directory", ""),
        ("local", "local_directory", "a\nb"),
        ("local", "dashboard_address", "8787"),
        ("local", "dashboard_address", ":65536"),
        ("local", "dashboard_address", 8787),
        ("address", "address", "http://host:8786"),
        ("address", "address", "tcp://host"),
        ("address", "address", "tcp://host:0"),
        ("address", "address", "tcp://host:99999"),
        ("address", "address", "tcp://:8786"),
        ("address", "address", "host"),
        ("address", "address", ""),
        ("address", "address", 8786),
        ("scheduler-file", "scheduler_file", ""),
        ("scheduler-file", "scheduler_file", 1),
        ("slurm", "walltime", "4h"),
        ("slurm", "walltime", "00:00:00"),
        ("slurm", "walltime", "04:60:00"),
        ("slurm", "walltime", 4),
        ("slurm", "queue", "a b"),
        ("slurm", "account", ""),
        ("slurm", "interface", "lo; true"),
        ("slurm", "directives", "--constraint=fast"),
        ("slurm", "directives", ("constraint=fast",)),
        ("slurm", "directives", ("--comment=a\nrm -r .",)),
    ],
)
def test_a_value_that_cannot_work_is_refused_with_its_name(kind: str, field: str, value: object) -> None:
    with pytest.raises(ParameterError, match=field):
        ClusterSpec(kind, **(USED[kind] | {field: value}))


def test_an_unknown_kind_is_answered_with_the_known_ones() -> None:
    with pytest.raises(ParameterError, match="'ssh' is no kind of cluster: choose one of none, local, address"):
        ClusterSpec("ssh")


def test_distributed_is_not_imported_before_it_is_used() -> None:
    # The command line builds specs to check its options; its help must not wait for distributed.
    code = """
import sys
import mllkm_scale.cluster
from mllkm_scale.cluster import ClusterSpec, open_client, performance_report
with open_client(ClusterSpec(), memory_budget=1) as client, performance_report(client, None):
    assert client is None
sys.exit("distributed" in sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_the_cluster_folder_lists_its_names_and_no_others() -> None:
    import mllkm_scale.cluster

    for name in mllkm_scale.cluster.__all__:
        assert getattr(mllkm_scale.cluster, name).__name__ == name
    with pytest.raises(AttributeError, match="no attribute 'other'"):
        _ = mllkm_scale.cluster.other
