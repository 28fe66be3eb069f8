from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from mllkm_scale import __version__
from mllkm_scale.cli.app import cli
from mllkm_scale.cli.group import CommandGroup, Terminated, debug_option
from mllkm_scale.errors import BudgetError, DataError, InterruptedTraining, ModelFileError

Run = Callable[..., Result]
COMMANDS = (
    "demo",
    "fetch",
    "convert",
    "plan",
    "train",
    "run",
    "path",
    "choose",
    "stream",
    "predict",
    "evaluate",
    "explain",
    "inspect",
    "report",
    "export",
    "reproduce",
    "doctor",
    "config",
    "completion",
)
HEAVY = ("dask", "h5py", "numba", "rich", "scipy", "sklearn", "zarr")


@click.group(cls=CommandGroup)
def failing() -> None:
    """A group whose command raises what the test puts there."""


raised: list[BaseException] = []


@failing.command()
@debug_option
def fail() -> None:
    raise raised.pop()


def run_failing(error: BaseException, *arguments: str) -> Result:
    raised.append(error)
    return CliRunner().invoke(failing, ["fail", *arguments])


def test_the_version_is_that_of_the_package(mllkm: Run) -> None:
    result = mllkm("--version")
    assert result.exit_code == 0
    assert __version__ in result.stdout


def test_the_help_lists_the_commands_in_the_order_of_use(mllkm: Run) -> None:
    result = mllkm("--help")
    assert result.exit_code == 0
    listed = result.stdout.split("Commands:")[1].splitlines()
    assert [line.split()[0] for line in listed if line.strip()] == list(COMMANDS)
    assert "mllkm demo" in result.stdout


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_of_each_command_has_an_example_to_copy(mllkm: Run, command: str) -> None:
    result = mllkm(command, "--help")
    assert result.exit_code == 0
    assert f"  mllkm {command}" in result.stdout.split("Example")[1]


def test_help_does_not_import_the_heavy_modules() -> None:
    program = "import sys; from mllkm_scale.cli import cli; cli(['train', '--help'], standalone_mode=False)"
    found = f"print('HEAVY', [name for name in {HEAVY} if name in sys.modules])"
    watcher = f"import atexit, sys; atexit.register(lambda: {found})"
    done = subprocess.run([sys.executable, "-c", f"{watcher}\n{program}"], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "HEAVY []"


def test_without_a_command_the_help_is_shown(mllkm: Run) -> None:
    result = mllkm()
    assert "mllkm demo" in result.output
    assert "Traceback" not in result.output


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["trian"], "trian"),
        (["train"], "DATA"),
        (["train", "x.h5"], "--out"),
        (["train", "x.h5", "--out", "r", "--colour", "red"], "--colour"),
        (["train", "x.h5", "--out", "r", "--resume", "--overwrite"], "--resume"),
    ],
)
def test_a_usage_error_is_one_line_that_names_what_is_wrong(mllkm: Run, arguments: list[str], named: str) -> None:
    result = mllkm(*arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.startswith("mllkm: error: ")
    assert len(result.stderr.splitlines()) == 1
    assert named in result.stderr
    assert "--help" in result.stderr


@pytest.mark.parametrize("error", [DataError, BudgetError, ModelFileError, InterruptedTraining])
def test_an_error_of_the_package_is_one_line_and_its_own_exit_code(error: type[DataError]) -> None:
    result = run_failing(error("train.h5:X has NaN:\n  remove it"))
    assert result.exit_code == error.exit_code
    assert result.stderr == "mllkm: error: train.h5:X has NaN: remove it\n"
    assert result.stdout == ""


def test_an_unexpected_error_is_one_line_that_points_to_debug() -> None:
    result = run_failing(ZeroDivisionError("division by zero"))
    assert result.exit_code == 1
    assert result.stderr.startswith("mllkm: error: ZeroDivisionError: division by zero")
    assert "--debug" in result.stderr
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize("error", [ZeroDivisionError("by zero"), DataError("bad")])
def test_debug_shows_the_traceback_as_well(error: Exception) -> None:
    result = run_failing(error, "--debug")
    assert "Traceback" in result.stderr
    assert "raise raised.pop()" in result.stderr
    assert result.stderr.splitlines()[-1].startswith("mllkm: error: ")


@pytest.mark.parametrize("place", ["before", "after"])
def test_debug_may_stand_before_or_after_the_command(mllkm: Run, place: str, tmp_path: Path) -> None:
    words = ["inspect", str(tmp_path / "absent.mllkm")]
    words.insert(0 if place == "before" else 2, "--debug")
    result = mllkm(*words)
    assert result.exit_code == ModelFileError.exit_code
    assert "Traceback" in result.stderr


@pytest.mark.parametrize(("error", "code"), [(KeyboardInterrupt(), 130), (Terminated(), 143)])
def test_signals_end_with_their_conventional_code(error: BaseException, code: int) -> None:
    result = run_failing(error)
    assert result.exit_code == code
    assert "Traceback" not in result.stderr


def test_python_m_runs_the_same_program() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mllkm_scale.cli", "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout == f"mllkm, version {__version__}\n"


def test_the_group_is_called_as_the_program() -> None:
    assert cli.name == "mllkm"
