"""The integer header, compiled: the integers of the Python model, whatever the options and the rows."""

from __future__ import annotations

import re
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from mllkm_scale import Dataset
from mllkm_scale.cli.app import cli
from mllkm_scale.errors import ParameterError
from mllkm_scale.export import export_integer_c, integer_machine
from mllkm_scale.kernels.maps import MAPS

Fixture = Any
PAGE = Path(__file__).parents[3] / "docs" / "device.md"
STRICT = ["-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Werror"]
OPTIONS = [["-Os"], ["-O2"], ["-O1", "-g", "-fsanitize=undefined,address", "-fno-sanitize-recover=all"]]
PREPARATIONS: list[dict[str, Any]] = [
    {"scaling": "none"},
    {"scaling": "minmax", "local_bias": 0.0},
    {"scaling": "standard", "n_components": 20, "whiten": True},
    {"scaling": "quantile"},
    {"scaling": "standard+quantile", "n_components": 12, "map": "squared"},
    {"scaling": "auto", "fold": "scaled", "componentwise": True},
    {"scaling": "standard+quantile", "fold": "scaled and mapped", "map": "linear"},
]


def rows_for(machine: Fixture, X: np.ndarray) -> np.ndarray:
    """Rows of the data, rows of any integers, and the two ends of their range."""
    inputs, rng = machine.preparation.inputs, np.random.default_rng(0)
    any_row = rng.integers(inputs.low, inputs.high + 1, (40, X.shape[1]))
    return np.concatenate([inputs.quantise(X), any_row, np.full_like(any_row[:1], inputs.low), any_row[:1] * 0])


@pytest.mark.parametrize("bits", [4, 8, 16])
@pytest.mark.parametrize("componentwise", [False, True])
@pytest.mark.parametrize("map", MAPS)
def test_c_gives_the_integers_of_python(
    map: str, componentwise: bool, bits: int, digits: Fixture, machine: Fixture, run_in_c: Fixture
) -> None:
    X, y = digits
    model = machine(X, y % (2 if map == "linear" else 5), map, componentwise, n_kernels=8, n_components=10)
    integers = integer_machine(model, Dataset.from_arrays(X), bits)
    U = rows_for(integers, X)
    for options in OPTIONS if map in ("squared", "exponential") else OPTIONS[:1]:
        scores, codes = run_in_c(model, X, bits, U, *options)
        np.testing.assert_array_equal(scores, integers.scores(U))
        np.testing.assert_array_equal(codes, integers.codes(U))


@pytest.mark.parametrize("bits", [4, 8, 16])
@pytest.mark.parametrize("choice", PREPARATIONS, ids=lambda choice: "-".join(map(str, choice.values())))
def test_every_preparation_has_the_integers_of_python(
    choice: dict[str, Any], bits: int, table: Fixture, machine: Fixture, run_in_c: Fixture
) -> None:
    X, y = table
    columns = min(choice.get("n_components", 3), 6)
    choice = choice | ({"n_components": columns} if "n_components" in choice else {})
    model = machine(X, y, n_kernels=6, **choice)
    integers = integer_machine(model, Dataset.from_arrays(X), bits)
    U = rows_for(integers, X)
    scores, _ = run_in_c(model, X, bits, U, *OPTIONS[2])
    np.testing.assert_array_equal(scores, integers.scores(U))


@pytest.mark.parametrize("n_components", [6, 9])
def test_a_projection_of_many_features_has_4_bits(
    n_components: int, digits: Fixture, machine: Fixture, run_in_c: Fixture
) -> None:
    X, y = np.hstack([digits[0], digits[0][:, ::-1] ** 2]), digits[1]
    model = machine(X, y % 3, "squared", n_kernels=5, n_components=n_components)
    integers = integer_machine(model, Dataset.from_arrays(X), 4)
    columns = len(integers.preparation.columns)
    assert columns > 64
    assert integers.constants["matrix"].nbytes == columns * ((n_components + 1) // 2)
    assert integers.constants["slopes"].nbytes == 5 * ((3 * n_components + 1) // 2)
    U = rows_for(integers, X)
    for options in OPTIONS:
        scores, codes = run_in_c(model, X, 4, U, *options)
        np.testing.assert_array_equal(scores, integers.scores(U))
        np.testing.assert_array_equal(codes, integers.codes(U))


def test_the_header_is_cpp_and_has_no_float(
    digits: Fixture, machine: Fixture, run_in_c: Fixture, tmp_path: Path
) -> None:
    X, y = digits
    model = machine(X, y, "squared", n_kernels=5)
    integers = integer_machine(model, Dataset.from_arrays(X), 8)
    U = integers.preparation.inputs.quantise(X[:50])
    scores, _ = run_in_c(model, X, 8, U, "-x", "c++", "-std=c++11", "-Wall", "-Werror")
    np.testing.assert_array_equal(scores, integers.scores(U))
    header = (tmp_path / "model.h").read_text()
    code = header[header.index("*/") :]
    assert not any(word in code for word in ("float", "double", "math.h", "malloc"))


def test_the_comment_states_what_a_device_needs(digits: Fixture, machine: Fixture, tmp_path: Path) -> None:
    X, y = digits
    model = machine(X, y, "squared", n_kernels=5)
    summary = export_integer_c(model, tmp_path / "model.h", Dataset.from_arrays(X), 8, prefix="digits")
    header = (tmp_path / "model.h").read_text()
    assert f"{summary.constant_bytes} bytes" in header
    assert f"stack       {summary.stack_bytes} bytes" in header
    assert "They are the features themselves, whose range is 0 to 16." in header
    assert f"by at most {summary.deviation:.2g} from the model" in header
    assert "static inline int digits_predict(const digits_input *x)" in header
    assert "mllkm_" not in header


def test_the_program_of_the_page_compiles(table: Fixture, machine: Fixture, gcc: str, tmp_path: Path) -> None:
    X, y = table
    export_integer_c(machine(X, y, "squared"), tmp_path / "cancer.h", Dataset.from_arrays(X), 8, prefix="cancer")
    [code] = re.findall(r"^```c\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    (tmp_path / "main.c").write_text(code)
    subprocess.run([gcc, *STRICT, "-O2", "-o", "main", "main.c"], cwd=tmp_path, check=True, timeout=120)
    said = subprocess.run([tmp_path / "main"], capture_output=True, text=True, check=True, timeout=60).stdout
    assert re.fullmatch(r"class [01], score -?\d+\n", said)


def test_steps_of_features_are_stated(table: Fixture, machine: Fixture, tmp_path: Path) -> None:
    X, y = table
    model = machine(X, y, "squared", n_kernels=5)
    export_integer_c(model, tmp_path / "model.h", Dataset.from_arrays(X), 8)
    inputs = integer_machine(model, Dataset.from_arrays(X), 8).preparation.inputs
    header = (tmp_path / "model.h").read_text()
    for j in range(X.shape[1]):
        assert f"x[{j}]  offset {float(inputs.offsets[j])}, step {float(inputs.steps[j])}, range" in header


def test_what_has_no_form_in_integers_is_refused(digits: Fixture, machine: Fixture, tmp_path: Path) -> None:
    X, y = digits
    data = Dataset.from_arrays(X)
    with pytest.raises(ParameterError, match="4, 8 or 16 bits"):
        integer_machine(machine(X, y, n_kernels=3), data, 3)
    with pytest.raises(ParameterError, match="unit-norm"):
        integer_machine(machine(X, y, n_kernels=3, scaling="unit-norm"), data)
    broken = X.copy()
    broken[3, 4] = np.nan
    with pytest.raises(ParameterError, match="NaN or infinity"):
        integer_machine(machine(X, y, n_kernels=3), Dataset.from_arrays(broken))


def test_the_command_writes_it(digits: Fixture, machine: Fixture, tmp_path: Path) -> None:
    import h5py

    X, y = digits
    machine(X, y, "squared", n_kernels=3).save(tmp_path / "model.mllkm")
    with h5py.File(tmp_path / "train.h5", "w") as file:
        file["X"] = X
    command = ["export", str(tmp_path / "model.mllkm"), "--out", str(tmp_path / "model.h"), "--integer", "8"]
    result = CliRunner().invoke(cli, [*command, "--data", str(tmp_path / "train.h5")])
    assert result.exit_code == 0, result.output
    assert "its kernels in integers, off by at most" in result.output
    assert "int8_t" in (tmp_path / "model.h").read_text()
    assert "--integer needs --data" in CliRunner().invoke(cli, command).output


def test_the_rows_may_be_a_table_in_any_order(digits: Fixture, machine: Fixture, tmp_path: Path) -> None:
    X, y = digits
    names = [f"pixel {j}" for j in range(X.shape[1])]
    model = replace(machine(X, y, "squared", n_kernels=3), feature_names=names)
    model.save(tmp_path / "model.mllkm")
    turned = np.column_stack([X[:, ::-1], y])
    np.savetxt(tmp_path / "train.csv", turned, delimiter=",", header=",".join([*names[::-1], "digit"]), comments="")
    command = ["export", str(tmp_path / "model.mllkm"), "--out", str(tmp_path / "model.h"), "--integer", "4"]
    result = CliRunner().invoke(cli, [*command, "--data", str(tmp_path / "train.csv")])
    assert result.exit_code == 0, result.output
    export_integer_c(model, tmp_path / "same.h", Dataset.from_arrays(X), 4)
    first, second = ((tmp_path / name).read_text() for name in ("model.h", "same.h"))
    assert first == second
