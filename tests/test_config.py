"""Defaults that the user configures: who wins, what is said of those that cannot work, and that all obey."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import dask.config
import pytest
from click.testing import CliRunner
from sklearn.base import clone

from mllkm_scale import Dataset, MLLKMClassifier, train
from mllkm_scale.base.events import Finished
from mllkm_scale.cli import cli
from mllkm_scale.config import PARAMETERS, SETTINGS, Origin, configured, in_force
from mllkm_scale.errors import ParameterError
from mllkm_scale.params import checked, defaults, resolve

Configure = Callable[..., None]


@pytest.fixture
def configure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Configure]:
    """Configure as a user would: texts of files, then environment variables; all is as before at the end."""
    for name in [name for name in os.environ if name.startswith("DASK_")]:
        monkeypatch.delenv(name)
    before = dict(dask.config.config)

    def make(*files: str, **variables: str) -> None:
        for number, text in enumerate(files):
            (tmp_path / f"{number}.yaml").write_text(text)
        for name, value in variables.items():
            monkeypatch.setenv(f"DASK_MLLKM__{name}", value)
        monkeypatch.setattr(dask.config, "paths", [str(tmp_path)])
        dask.config.config.pop("mllkm", None)
        dask.config.update(dask.config.config, dask.config.collect(paths=[str(tmp_path)]))

    make()
    yield make
    dask.config.config.clear()
    dask.config.config.update(before)


def origin(key: str) -> tuple[Origin, str]:
    found = next(setting for setting in in_force() if setting.key == key)
    return found.origin, found.place


def test_the_built_in_values_are_the_defaults_of_the_parameters(configure: Configure) -> None:
    standard = defaults()
    assert {name: configured(name.replace("_", "-")) for name in PARAMETERS} == {n: standard[n] for n in PARAMETERS}
    assert {setting.origin for setting in in_force()} == {Origin.BUILT_IN}


def test_nothing_that_shapes_a_result_can_be_configured() -> None:
    free = {"memory-budget", "scratch-dir", "n-jobs", "worker-timeout", "report", "progress"}
    assert set(SETTINGS) == free | {"workers", "scheduler", "scheduler-file"}


def test_each_stronger_place_wins(configure: Configure, tmp_path: Path) -> None:
    configure("mllkm:\n  memory-budget: 3GB\n")
    assert (resolve().memory_budget, origin("memory-budget")) == ("3GB", (Origin.FILE, str(tmp_path / "0.yaml")))
    configure("mllkm:\n  memory-budget: 3GB\n", MEMORY_BUDGET="4GB")
    variable = "DASK_MLLKM__MEMORY_BUDGET"
    assert (resolve().memory_budget, origin("memory-budget")) == ("4GB", (Origin.ENVIRONMENT, variable))
    with dask.config.set({"mllkm.memory-budget": "5GB"}):
        assert (resolve().memory_budget, origin("memory-budget")[0]) == ("5GB", Origin.PROGRAM)
        assert resolve(memory_budget="6GB").memory_budget == "6GB"
        assert resolve(memory_budget=None).memory_budget == "5GB"
        assert checked().memory_budget == "2GB"


def test_the_later_file_wins_and_is_named(configure: Configure, tmp_path: Path) -> None:
    configure("mllkm: {n-jobs: 2}", "mllkm: {n_jobs: 3}")
    assert (configured("n-jobs"), origin("n-jobs")[1]) == (3, str(tmp_path / "1.yaml"))


@pytest.mark.parametrize("name", ["memory-budget", "memory_budget"])
def test_dashes_and_underscores_are_the_same(configure: Configure, name: str) -> None:
    configure(f"mllkm:\n  {name}: 3GB\n")
    assert configured("memory-budget") == "3GB"


@pytest.mark.parametrize(("text", "value"), [("false", False), ("0", False), ("True", True), ("1", True)])
def test_a_switch_is_read_from_the_environment(configure: Configure, text: str, value: bool) -> None:
    configure(REPORT=text)
    assert configured("report") is value


def test_null_is_as_if_it_were_not_there(configure: Configure) -> None:
    configure("mllkm:\n  memory-budget: null\n")
    assert configured("memory-budget") == "2GB"


def test_an_unknown_key_is_named_with_its_place_and_the_nearest_known_one(configure: Configure, tmp_path: Path) -> None:
    configure("mllkm:\n  memory-bugdet: 3GB\n")
    with pytest.raises(ParameterError, match=r"memory-bugdet .*0\.yaml.*did you mean memory-budget\?"):
        resolve()
    configure("mllkm:\n  colour: red\n")
    with pytest.raises(ParameterError, match=r"colour .*known are memory-budget"):
        configured("report")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("MEMORY_BUDGET", "lots"),
        ("N_JOBS", "0"),
        ("N_JOBS", "many"),
        ("WORKER_TIMEOUT", "-1"),
        ("REPORT", "perhaps"),
        ("PROGRESS", "loud"),
        ("WORKERS", "-2"),
        ("SCHEDULER", "7"),
        ("SCRATCH_DIR", "3"),
    ],
)
def test_a_value_that_cannot_work_is_named_with_its_variable(configure: Configure, name: str, text: str) -> None:
    configure(**{name: text})
    with pytest.raises(ParameterError, match=f"DASK_MLLKM__{name}"):
        configured(name.lower().replace("_", "-"))


def test_something_else_than_keys_is_refused(configure: Configure) -> None:
    configure("mllkm: 4GB")
    with pytest.raises(ParameterError, match="write keys below it"):
        resolve()


def test_a_file_that_is_no_yaml_ends_the_command_with_its_name(tmp_path: Path) -> None:
    (tmp_path / "mllkm.yaml").write_text("mllkm: {memory-budget: 3GB\n")
    done = subprocess.run(
        [sys.executable, "-m", "mllkm_scale", "config"],
        env=os.environ | {"DASK_CONFIG": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert f"{tmp_path}/mllkm.yaml" in done.stderr


READ = """
from mllkm_scale.config import SETTINGS, configured
values = [configured(key) for key in SETTINGS]
print(values[0], values[2], values[4])
"""


@pytest.mark.parametrize(
    ("text", "variables", "expected"),
    [
        ("distributed: {}", {}, "2GB -1 True"),
        ("", {"DASK_MLLKM__N_JOBS": "3", "DASK_MLLKM__REPORT": "FALSE"}, "2GB 3 False"),
        ("", {"DASK_MLLKM__MEMORY_BUDGET": "5e9", "DASK_MLLKM__REPORT": "null"}, "5000000000 -1 True"),
        ("mllkm: {memory-budget: 3GB}", {"DASK_MLLKM__N_JOBS": "3"}, "3GB 3 True"),
    ],
)
def test_a_new_process_reads_files_and_variables(
    tmp_path: Path, text: str, variables: dict[str, str], expected: str
) -> None:
    (tmp_path / "some.yaml").write_text(text)
    env = {name: value for name, value in os.environ.items() if not name.startswith("DASK_")}
    done = subprocess.run(
        [sys.executable, "-c", READ],
        env=env | {"DASK_CONFIG": str(tmp_path)} | variables,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == expected


def test_train_and_the_estimator_obey(configure: Configure, real_data: Callable, tmp_path: Path) -> None:
    X, y = real_data("iris")
    configure(f"mllkm: {{memory-budget: 1GB, n-jobs: 1, scratch-dir: {tmp_path}}}")
    told: list[object] = []
    options = {"anchors": 20, "tol": 0.2}
    result = train(Dataset.from_arrays(X, y), listener=told.append, **options)
    assert result.plan.budget_bytes == 10**9
    assert next(event for event in told if isinstance(event, Finished)).budget_bytes == 10**9
    assert result.plan.disk_bytes > 0
    assert MLLKMClassifier(**options).fit(X, y).plan_.budget_bytes == 10**9
    assert MLLKMClassifier(memory_budget="2GB", **options).fit(X, y).plan_.budget_bytes == 2 * 10**9


def test_the_parameters_of_an_estimator_do_not_show_what_is_configured(configure: Configure) -> None:
    plain = MLLKMClassifier().get_params()
    configure(MEMORY_BUDGET="3GB")
    assert MLLKMClassifier().get_params() == clone(MLLKMClassifier()).get_params() == plain
    assert repr(MLLKMClassifier()) == "MLLKMClassifier()"


def test_the_command_line_obeys_and_options_win(configure: Configure, tmp_path: Path, real_data: Callable) -> None:
    from mllkm_scale.data import convert

    X, y = real_data("iris")
    lines = [",".join(map(str, [*row, label])) for row, label in zip(X, y, strict=True)]
    (tmp_path / "iris.csv").write_text("\n".join(lines))
    data = str(tmp_path / "iris.h5")
    convert(tmp_path / "iris.csv", data)
    configure(MEMORY_BUDGET="3GB")

    def budget(*options: str) -> int:
        return int(json.loads(CliRunner().invoke(cli, ["plan", data, "--json", *options]).stdout)["budget_bytes"])

    assert (budget(), budget("--memory", "1GB")) == (3 * 10**9, 10**9)
    job = tmp_path / "job.toml"
    job.write_text("data.path = 'iris.h5'\noutput.run = 'run'\n")
    assert "of 3.0 GB" in CliRunner().invoke(cli, ["run", str(job), "--dry-run"]).stdout
    job.write_text("data.path = 'iris.h5'\noutput.run = 'run'\nbudget.memory = '1GB'\n")
    assert "of 1.0 GB" in CliRunner().invoke(cli, ["run", str(job), "--dry-run"]).stdout


def test_the_cluster_of_a_job_wins_over_the_configured_one(
    configure: Configure, tmp_path: Path, real_data: Callable
) -> None:
    import h5py

    with h5py.File(tmp_path / "iris.h5", "w") as file:
        file["X"], file["y"] = real_data("iris")
    job = tmp_path / "job.toml"

    def cluster(text: str, *options: str) -> str:
        job.write_text(f"data.path = 'iris.h5'\noutput.run = 'run'\n{text}")
        output = CliRunner().invoke(cli, ["run", str(job), "--dry-run", *options]).output
        return next(line for line in output.splitlines() if line.startswith("cluster:"))

    configure("mllkm:\n  workers: 2\n")
    assert cluster("") == "cluster: local, workers 2"
    assert cluster("cluster.kind = 'none'") == "cluster: none"
    assert cluster("", "--workers", "0") == "cluster: none"
    configure("mllkm:\n  workers: 2\n", SCHEDULER="tcp://node1:8786")
    assert cluster("") == "cluster: address, address tcp://node1:8786"


def test_two_clusters_in_one_place_are_refused(configure: Configure, tmp_path: Path) -> None:
    configure(WORKERS="2", SCHEDULER_FILE="s.json")
    result = CliRunner().invoke(cli, ["train", str(tmp_path / "a.h5"), "--out", str(tmp_path / "run")])
    assert result.exit_code == 2
    assert "keep one of them" in result.stderr


def test_config_tells_values_and_places(configure: Configure) -> None:
    configure("mllkm:\n  n-jobs: 3\n", REPORT="false")
    told = json.loads(CliRunner().invoke(cli, ["config", "--json"]).stdout)
    assert told["report"] == {"value": False, "origin": "environment", "place": "DASK_MLLKM__REPORT"}
    assert (told["n-jobs"]["value"], told["n-jobs"]["origin"]) == (3, "file")
    text = CliRunner().invoke(cli, ["config"]).stdout
    assert [line.split()[0] for line in text.splitlines()[1:]] == list(SETTINGS)


def test_a_bad_configuration_is_told_as_such_and_not_as_a_bad_option(configure: Configure, tmp_path: Path) -> None:
    configure(MEMORY_BUDGET="lots")
    result = CliRunner().invoke(cli, ["plan", str(tmp_path / "a.h5"), "--C", "3"])
    assert result.exit_code == 2
    assert "DASK_MLLKM__MEMORY_BUDGET" in result.stderr
    assert "--C" not in result.stderr


def test_the_page_lists_every_setting_with_its_built_in_value() -> None:
    page = Path(__file__).parents[1] / "docs" / "configuration.md"
    text = page.read_text(encoding="utf-8")
    for key, setting in SETTINGS.items():
        shown = {None: "none", True: "`true`"}.get(setting.default, f"`{setting.default}`")
        assert f"| `{key}` | {shown} |" in text, key
