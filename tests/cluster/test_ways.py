"""The ways to a cluster that scripts and manifests describe: run for real with stand-ins, or checked where not."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import psutil
import pytest
import yaml

from mllkm_scale.base.units import parse_bytes
from mllkm_scale.cluster import settings, slurm
from mllkm_scale.errors import MLLKMError

ROOT = Path(__file__).parent.parent.parent
STAND_INS = Path(__file__).parent / "stand_ins"
SCRIPTS = sorted(path for folder in ("cluster", "jobs/submit") for path in (ROOT / folder).glob("*.sh"))
MANIFESTS = sorted([*(ROOT / "cluster" / "kubernetes").glob("*.yaml"), *(ROOT / "jobs" / "submit").glob("*.yaml")])
ENVIRONMENT = dict.fromkeys((*settings.BLAS_THREADS, "NUMBA_NUM_THREADS"), "1") | slurm._as_environment(
    settings.WORKER_SETTINGS
)
SCHEDULER = slurm._as_environment(settings.SCHEDULER_SETTINGS)
Run = Callable[..., subprocess.CompletedProcess[str]]


def names(paths: list[Path]) -> list[str]:
    return [str(path.relative_to(ROOT)) for path in paths]


# All scripts


@pytest.mark.parametrize("script", names(SCRIPTS))
def test_a_script_is_sound(script: str) -> None:
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("bash is not installed")
    subprocess.run([bash, "-n", ROOT / script], check=True, timeout=20)
    assert os.access(ROOT / script, os.X_OK) or script == "cluster/common.sh"
    if shellcheck := shutil.which("shellcheck"):
        subprocess.run([shellcheck, "--exclude=SC1091", ROOT / script], check=True, timeout=60)


@pytest.mark.parametrize("path", ["cluster/common.sh", "jobs/submit/slurm.sh"])
def test_scripts_start_workers_with_the_settings_of_the_package(path: str) -> None:
    text = (ROOT / path).read_text()
    pattern = rf"\b({'|'.join(ENVIRONMENT | SCHEDULER)}|DASK_DISTRIBUTED__\w+)=([\w.]+)"
    assert dict(re.findall(pattern, text)) == ENVIRONMENT | SCHEDULER


# A scheduler and workers of their own, on this machine


def test_scheduler_file_script_passes_ctrl_c_on_once_and_keeps_its_workers_until_the_command_has_ended(
    job: Path, eventually: Callable[..., Any]
) -> None:
    Path("run/wait").touch()
    command = ("mllkm", "run", str(job), "--resume", "--scheduler-file", "s.json")
    with _started("cluster/scheduler-file.sh", "-n", "2", "-m", "300MB", "-f", "s.json", "--", *command) as script:
        eventually(lambda: "sum 3" in _read("run/log"))
        os.killpg(script.pid, signal.SIGINT)  # as a terminal does
        said, _ = script.communicate(timeout=30)
        assert (script.returncode, said) == (128 + signal.SIGINT, "")
    assert Path("run/log").read_text() == f"sum 3\nsum 7\nsignals {int(signal.SIGINT)}\n"
    assert not Path("s.json").exists()
    logs = [path.name for path in Path("s.json.logs").iterdir()]
    assert sorted(logs) == ["scheduler.log", "worker-1.log", "worker-2.log"]


def test_no_scheduler_or_worker_outlives_a_script_that_is_killed(
    commands: Path, eventually: Callable[..., Any], has_ended: Callable[[psutil.Process], bool]
) -> None:
    with _started("cluster/scheduler-file.sh", "-n", "1", "-m", "300MB", "--", "sleep", "50") as script:
        eventually(lambda: "Registered to" in _read("scheduler.json.logs/worker-1.log"))
        started = {process: process.cmdline() for process in psutil.Process(script.pid).children(recursive=True)}
        assert sum("distributed.cli" in " ".join(words) for words in started.values()) >= 2
        script.kill()
        (command,) = (process for process, words in started.items() if words == ["sleep", "50"])
        eventually(lambda: all(has_ended(process) for process in started if process != command), within_s=20)
        command.kill()


def test_a_scheduler_file_that_is_there_is_not_taken_over(run: Run, commands: Path) -> None:
    Path("scheduler.json").write_text("{}")
    ended = run("cluster/scheduler-file.sh", "--", "true")
    assert ended.returncode == 2
    assert "scheduler.json is there already" in ended.stderr
    assert Path("scheduler.json").read_text() == "{}"


@pytest.mark.parametrize(
    ("script", "arguments", "said"),
    [
        ("cluster/scheduler-file.sh", ["-n", "0"], "-n 0: give a whole number from 1"),
        ("cluster/scheduler-file.sh", ["-x"], "usage: scheduler-file.sh"),
        ("cluster/ssh.sh", [], "-h (missing): give a file with one host a line"),
        ("jobs/submit/ssh.sh", [], "usage: jobs/submit/ssh.sh"),
        ("jobs/submit/slurm.sh", [], "usage: jobs/submit/slurm.sh"),
        ("jobs/submit/kubernetes.sh", [], "usage: jobs/submit/kubernetes.sh"),
    ],
)
def test_a_script_that_is_called_wrongly_says_how(run: Run, script: str, arguments: list[str], said: str) -> None:
    ended = run(script, *arguments)
    assert ended.returncode == 2
    assert said in ended.stderr


# ssh


def test_a_job_runs_on_hosts_that_ssh_reaches(run: Run, job: Path) -> None:
    Path("hosts").write_text("# two hosts\nnode1\n\n  node2\n")
    ended = run("jobs/submit/ssh.sh", "job.toml", "-h", "hosts", "-i", "lo")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert Path("run/log").read_text() == "sum 3\nsignals\n"
    calls = Path("ssh-calls").read_text().splitlines()
    assert {call.split()[0] for call in calls} == {"node1", "node2"}
    assert all("BatchMode=yes" in call for call in calls)
    log = Path("run/scheduler.json.logs/worker-1-node1.log").read_text()
    assert "286.10 MiB" in log  # 300 MB, the budget of the job


def test_a_host_that_is_not_reached_is_named_before_anything_starts(run: Run, commands: Path) -> None:
    Path("hosts").write_text("node1\nunreachable\n")
    ended = run("cluster/ssh.sh", "-h", "hosts", "--", "true")
    assert ended.returncode == 1
    assert "unreachable is not reached: see that `ssh unreachable true` asks for nothing" in ended.stderr
    assert list(Path("scheduler.json.logs").iterdir()) == []


# SLURM, all in one allocation


def test_a_slurm_job_runs_a_training_and_forwards_the_signal_of_its_end(
    run: Run, job: Path, eventually: Callable[..., Any]
) -> None:
    Path("run/wait").touch()
    submitted = run(
        "jobs/submit/slurm.sh",
        *("job.toml", "--workers", "2", "--partition=long", "--time=01:00:00"),
        MLLKM_INTERFACE="lo",
        MLLKM_REQUEUE="1",
    )
    assert (submitted.returncode, submitted.stdout) == (0, "Submitted batch job 1\n")
    given = ast.literal_eval(re.sub(r"PosixPath\((.*?)\)", r"\1", Path("jobs/1/options").read_text()))
    assert (given["ntasks"], given["partition"], given["time"]) == (3, "long", "01:00:00")
    assert given["mem_per_cpu"] == "763M"  # budget of the job, nanny and scheduler
    assert (given["signal"], given["requeue"]) == ("B:TERM@120", True)
    eventually(lambda: "sum 3" in _read("run/log"))
    subprocess.run(["scancel", "--batch", "--signal=TERM", "1"], check=True, timeout=20)
    assert eventually(lambda: _read("jobs/1/code"), within_s=30) == str(128 + signal.SIGTERM)
    assert Path("run/log").read_text() == f"sum 3\nsum 7\nsignals {int(signal.SIGTERM)}\n"
    assert Path("jobs/1/requeued").exists()
    assert sorted(path.name for path in Path("run").glob("*.log")) == [f"cluster-1-{rank}.log" for rank in range(3)]
    assert Path("mllkm-1.log").exists()


def test_a_job_file_that_cannot_work_is_not_submitted(run: Run, job: Path) -> None:
    job.write_text('data.path = "data.h5"\n')
    ended = run("jobs/submit/slurm.sh", "job.toml")
    assert ended.returncode == 2
    assert "output" in ended.stderr
    assert list(Path("jobs").iterdir()) == []


# Kubernetes and the container


@pytest.mark.parametrize("manifest", names(MANIFESTS))
def test_a_manifest_fits_its_schema(manifest: str) -> None:
    schema = yaml.safe_load((STAND_INS / "kubernetes.schema.yaml").read_text())
    kind = {"PersistentVolumeClaim": "claim", "Job": "job", "DaskCluster": "daskcluster", "NetworkPolicy": "policy"}
    resource = _manifest(manifest)
    # Of its kind alone: the errors of a choice between all kinds would say little.
    jsonschema.Draft202012Validator(schema | {"oneOf": [{"$ref": f"#/$defs/{kind[resource['kind']]}"}]}).validate(
        resource
    )


def test_manifests_and_container_fit_each_other() -> None:
    cluster = _manifest("cluster/kubernetes/daskcluster.yaml")
    claim = _manifest("cluster/kubernetes/volume.yaml")
    job = _manifest("jobs/submit/kubernetes-job.yaml")
    name, scheduler, worker = cluster["metadata"]["name"], cluster["spec"]["scheduler"], cluster["spec"]["worker"]
    master = job["spec"]["template"]
    assert scheduler["service"]["selector"] == {"dask.org/cluster-name": name, "dask.org/component": "scheduler"}
    ports = {port["name"]: port["containerPort"] for port in scheduler["spec"]["containers"][0]["ports"]}
    assert {port["targetPort"]: port["port"] for port in scheduler["service"]["ports"]} == ports
    # The operator's service is NAME-scheduler.
    assert master["spec"]["containers"][0]["command"][-1] == f"tcp://{name}-scheduler:{ports['tcp-comm']}"
    assert claim["spec"]["accessModes"] == ["ReadWriteMany"]
    for pod in (worker["spec"], master["spec"]):
        volumes = {volume["name"]: volume for volume in pod["volumes"]}
        assert volumes["data"]["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]
        mounts = {mount["name"]: mount["mountPath"] for mount in pod["containers"][0]["volumeMounts"]}
        assert set(mounts) == set(volumes)
        assert mounts["data"] == "/data"
    pods = (scheduler["spec"], worker["spec"], master["spec"])
    assert len({pod["containers"][0]["image"] for pod in pods}) == 1
    user = re.search(r"^USER (\d+)$", (ROOT / "cluster" / "Containerfile").read_text(), re.MULTILINE)
    assert user is not None
    assert {pod["securityContext"]["runAsUser"] for pod in pods} == {int(user[1])}


def test_kubernetes_workers_have_the_settings_of_the_package_and_room_for_them() -> None:
    worker = _manifest("cluster/kubernetes/daskcluster.yaml")["spec"]["worker"]["spec"]["containers"][0]
    assert {variable["name"]: variable["value"] for variable in worker["env"]} == ENVIRONMENT
    limit = parse_bytes(worker["args"][worker["args"].index("--memory-limit") + 1])
    assert parse_bytes(worker["resources"]["limits"]["memory"]) >= limit + slurm.NANNY_BYTES
    assert worker["resources"]["requests"]["memory"] == worker["resources"]["limits"]["memory"]
    assert worker["args"][worker["args"].index("--nthreads") + 1] == "1"


def test_a_kubernetes_job_is_not_tried_again_for_its_input() -> None:
    rules = _manifest("jobs/submit/kubernetes-job.yaml")["spec"]["podFailurePolicy"]["rules"]
    final = {kind.exit_code for kind in MLLKMError.__subclasses__()} - {8, 10, 130}  # cluster and network may come back
    disrupted, failed = rules  # the first one that fits counts
    assert disrupted == {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}
    assert set(failed["onExitCodes"]["values"]) == final


@pytest.mark.parametrize("image", ["mllkm-scale:latest", "registry.example/me/mllkm-scale:1"])
def test_kubernetes_script_applies_the_manifests_and_the_job_file(run: Run, job: Path, image: str) -> None:
    ended = run("jobs/submit/kubernetes.sh", "job.toml", "--namespace=learning", MLLKM_IMAGE=image)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert Path("kubectl-calls").read_text().splitlines() == [
        "--namespace=learning apply -f -",
        "   PersistentVolumeClaim",
        f"   DaskCluster {image}",
        "   NetworkPolicy",
        "--namespace=learning delete --ignore-not-found job/mllkm configmap/mllkm-job",
        "--namespace=learning create configmap mllkm-job --from-file=job.toml=job.toml",
        "--namespace=learning apply -f -",
        f"   Job {image}",
    ]


def test_the_steps_of_the_container_file_make_a_program_that_runs(tmp_path: Path) -> None:
    pytest.importorskip("hatchling", reason="hatchling, which builds the package, is not installed")
    image = tmp_path / "image"
    image.mkdir()
    build = [sys.executable, STAND_INS / "image" / "build.py", ROOT / "cluster" / "Containerfile", ROOT, image]
    facts = json.loads(subprocess.run(build, capture_output=True, check=True, timeout=90).stdout)
    assert facts["FROM"] == "docker.io/library/python:3.11-slim"
    assert facts["USER"] == "1000"
    assert (image / "users").read_text().split()[0] == "mllkm"
    assert (image / "site" / "mllkm_scale" / "py.typed").exists()
    program, *arguments = facts["CMD"]
    ended = subprocess.run(
        [sys.executable, image / "site" / "bin" / program, *arguments],
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(image / "site"), **facts["ENV"]},
        cwd=image,
        timeout=60,
        check=True,
    )
    assert ended.stdout.startswith("Usage: mllkm")


# The package


def test_only_scan_and_cluster_import_distributed() -> None:
    package = ROOT / "mllkm_scale"
    importing = set()
    for path in package.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            modules = []
            if isinstance(node, ast.Import):
                modules = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                modules = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
            elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
                modules = [argument.value for argument in node.args if isinstance(argument, ast.Constant)]
            if any(re.match(r"(dask\.)?(distributed|dask_jobqueue)(\.|$)", str(module)) for module in modules):
                importing.add(path.relative_to(package).parts[0])
    assert "cluster" in importing
    assert importing <= {"cluster", "scan"}


def _manifest(path: str) -> dict[str, Any]:
    (resource,) = yaml.safe_load_all((ROOT / path).read_text())
    return dict(resource)


def _read(path: str) -> str:
    return Path(path).read_text() if Path(path).exists() else ""


class _started:
    """A script of the project that runs in a session of its own, and not beyond the block."""

    def __init__(self, script: str, *arguments: str) -> None:
        self.command = [ROOT / script, *arguments]

    def __enter__(self) -> subprocess.Popen[str]:
        self.script = subprocess.Popen(
            self.command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        return self.script

    def __exit__(self, *error: object) -> None:
        if self.script.poll() is None:
            self.script.terminate()
        self.script.communicate(timeout=30)
