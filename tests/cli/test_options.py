from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest
from click.testing import Result

from mllkm_scale.cli import cli
from mllkm_scale.cli.options import given_parameters, training_options
from mllkm_scale.params import PRESETS, Params, resolve

Run = Callable[..., Result]


def given(*arguments: str) -> dict[str, Any]:
    """What the options of a command line give."""
    found: list[dict[str, Any]] = []

    @click.command()
    @training_options
    @click.pass_context
    def command(context: click.Context, /, **options: Any) -> None:
        found.append(given_parameters(context))

    command.main([*arguments], standalone_mode=False)
    return found[0]


def test_every_parameter_but_verbose_has_an_option(mllkm: Run) -> None:
    text = mllkm("train", "--help").stdout
    for spec in dataclasses.fields(Params):
        flag = f"--{spec.name.replace('_', '-')}"
        assert (flag in text) == (spec.name != "verbose")


def unwrapped(text: str) -> str:
    """Without white space, as lines may also break after a hyphen."""
    return "".join(text.split())


def test_the_help_tells_what_params_tells(mllkm: Run) -> None:
    text = unwrapped(mllkm("train", "--help").stdout)
    for spec in dataclasses.fields(Params):
        if spec.name != "verbose":
            assert unwrapped(spec.metadata["help"][1:]) in text
    assert unwrapped("[default: 2GB]") in text


def test_nothing_is_given_by_default() -> None:
    assert given() == {}


@pytest.mark.parametrize(
    ("arguments", "name", "value"),
    [
        (["--C", "10"], "C", 10.0),
        (["--map", "Linear"], "map", "linear"),
        (["--componentwise"], "componentwise", True),
        (["--no-componentwise"], "componentwise", False),
        (["--gammas", "auto"], "gammas", "auto"),
        (["--gammas", "0.1,1, 10"], "gammas", (0.1, 1.0, 10.0)),
        (["--gammas", "2"], "gammas", (2.0,)),
        (["--anchors", "all"], "anchors", "all"),
        (["--anchors", "500"], "anchors", 500),
        (["--anchors", "kmeans:200"], "anchors", "kmeans:200"),
        (["--normalize", "none"], "normalize", "none"),
        (["--local-bias", "auto"], "local_bias", "auto"),
        (["--local-bias", "1.5"], "local_bias", 1.5),
        (["--n-components", "50"], "n_components", 50),
        (["--n-components", "0.95"], "n_components", 0.95),
        (["--max-rounds", "7"], "max_rounds", 7),
        (["--max-kernels", "none"], "max_kernels", None),
        (["--time-limit", "60"], "time_limit", 60.0),
        (["--memory", "512MiB"], "memory_budget", "512MiB"),
        (["--memory-budget", "1GB"], "memory_budget", "1GB"),
        (["--jobs", "2"], "n_jobs", 2),
        (["--n-jobs", "-1"], "n_jobs", -1),
        (["--seed", "3"], "random_state", 3),
        (["--random-state", "none"], "random_state", None),
        (["--scratch-dir", "scratch"], "scratch_dir", "scratch"),
    ],
)
def test_a_text_becomes_the_value_of_its_parameter(arguments: list[str], name: str, value: object) -> None:
    found = given(*arguments)
    assert found == {name: value}
    assert type(found[name]) is type(value)
    resolve(**found)


def test_anchors_are_read_from_a_file(tmp_path: Path) -> None:
    np.save(tmp_path / "anchors.npy", np.eye(3))
    np.testing.assert_array_equal(given("--anchors", str(tmp_path / "anchors.npy"))["anchors"], np.eye(3))


def write_pickle(path: Path) -> None:
    np.save(path, np.array([{}], dtype=object), allow_pickle=True)


@pytest.mark.parametrize(
    ("write", "reason"),
    [
        (lambda path: None, "does not exist"),
        (lambda path: path.write_text("1,2"), "cannot be read"),
        (lambda path: path.write_text(""), "cannot be read"),
        (write_pickle, "cannot be read"),
        (lambda path: np.save(path, np.ones(3)), r"shape \(3,\)"),
        (lambda path: np.save(path, np.array([["a"]])), "type <U1"),
    ],
)
def test_a_file_that_holds_no_anchors_is_refused(write: Callable[[Path], None], reason: str, tmp_path: Path) -> None:
    write(tmp_path / "a.npy")
    with pytest.raises(click.BadParameter, match=reason) as caught:
        given("--anchors", str(tmp_path / "a.npy"))
    assert "--anchors" in caught.value.format_message()


@pytest.mark.parametrize(
    "arguments",
    [
        ["--C", "ten"],
        ["--C", "-1"],
        ["--C", "nan"],
        ["--tol", "0"],
        ["--map", "cubic"],
        ["--gammas", "0.1;1"],
        ["--gammas", "0.1,-1"],
        ["--gammas", "inf"],
        ["--gammas", ""],
        ["--anchors", "some"],
        ["--anchors", "0"],
        ["--anchors", "kmeans:0"],
        ["--anchors", "kmeans"],
        ["--normalize", "variance"],
        ["--local-bias", "-1"],
        ["--n-components", "0"],
        ["--n-components", "1.5"],
        ["--n-components", "half"],
        ["--max-rounds", "0"],
        ["--max-rounds", "2.5"],
        ["--time-limit", "0"],
        ["--memory", "lots"],
        ["--memory", "-1GB"],
        ["--n-jobs", "0"],
        ["--seed", "x"],
        ["--preset", "book"],
    ],
)
def test_a_value_that_cannot_work_is_a_usage_error_that_names_the_option(mllkm: Run, arguments: list[str]) -> None:
    result = mllkm("train", "absent.h5", "--out", "absent", *arguments)
    assert result.exit_code == 2
    assert arguments[0] in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_the_preset_gives_its_settings() -> None:
    assert resolve(**given("--preset", "paper")) == resolve("paper")


def test_an_option_wins_over_the_preset_even_where_it_equals_the_default() -> None:
    assert PRESETS["paper"]["C"] != Params.C == "auto"
    found = resolve(**given("--preset", "paper", "--C", "auto", "--multi-class", "shared"))
    assert (found.C, found.multi_class, found.normalize) == ("auto", "shared", None)


CLUSTER = {"scheduler", "scheduler_file", "workers", "performance_report"}


def test_plan_and_train_take_the_same_parameters() -> None:
    of_train, of_plan = ({option.name for option in cli.commands[name].params} for name in ("train", "plan"))
    ending = {"test", "image_shape", "report"}
    assert of_train - of_plan == {"out", "resume", "overwrite", "progress"} | ending | CLUSTER
    assert of_plan - of_train == {"as_json"}
