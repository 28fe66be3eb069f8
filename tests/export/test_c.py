"""The C header, compiled: it agrees with Python, and needs nothing but a few functions of math.h."""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mllkm_scale.errors import ParameterError
from mllkm_scale.export import export_c
from mllkm_scale.export.layout import machine_layout
from mllkm_scale.model import model_checksum

Fixture = Any
USE = '#include "model.h"\nint use(const float *x);\nint use(const float *x) { return mllkm_predict(x); }\n'
PREPARATIONS = [
    {"scaling": "none"},
    {"scaling": "minmax", "local_bias": 0.0},
    {"scaling": "unit-norm", "map": "linear"},
    {"scaling": "unit-norm", "n_components": 10, "map": "exponential"},
    {"scaling": "standard", "n_components": 20, "whiten": True},
    {"scaling": "minmax", "componentwise": True, "map": "exponential"},
    {"scaling": "unit-norm", "n_components": 5, "whiten": True, "componentwise": True, "map": "squared"},
    {"scaling": "quantile"},
    {"scaling": "standard+quantile", "map": "exponential"},
    {"scaling": "auto", "componentwise": True, "map": "squared"},
    {"scaling": "standard+quantile", "n_components": 12, "whiten": True},
    {"scaling": "standard", "fold": "scaled"},
    {"scaling": "none", "fold": "mapped", "map": "squared"},
    {"scaling": "unit-norm", "fold": "scaled and mapped"},
    {"scaling": "auto", "fold": "scaled", "componentwise": True},
    {"scaling": "standard+quantile", "fold": "scaled and mapped", "map": "squared"},
    {"scaling": "minmax", "n_components": 10, "fold": "scaled"},
]
QUANTILES: list[dict[str, Any]] = [
    {"scaling": "quantile"},
    {"scaling": "auto", "fold": "scaled"},
    {"scaling": "standard+quantile", "fold": "mapped"},
    {"scaling": "quantile", "componentwise": True, "map": "squared"},
]


def exported(case: Fixture, folder: Path, compile_header: Fixture, **options: Any) -> Fixture:
    export_c(case.model, folder / "model.h", **options)
    return compile_header(folder / "model.h", case.model.n_machines, options.get("prefix", "mllkm"))


def test_every_family_agrees_on_digits(
    digit_case: Fixture, tmp_path: Path, compile_header: Fixture, require_agreement: Fixture
) -> None:
    require_agreement(digit_case, *exported(digit_case, tmp_path, compile_header)(digit_case.rows))


def test_every_family_agrees_on_a_thousand_rows_of_mnist(
    mnist_case: Fixture, tmp_path: Path, compile_header: Fixture, require_agreement: Fixture
) -> None:
    assert mnist_case.rows.shape == (1000, 784)
    require_agreement(mnist_case, *exported(mnist_case, tmp_path, compile_header)(mnist_case.rows))


def test_trained_machines_agree(
    trained_case: Fixture, tmp_path: Path, compile_header: Fixture, require_agreement: Fixture
) -> None:
    require_agreement(trained_case, *exported(trained_case, tmp_path, compile_header)(trained_case.rows))


@pytest.mark.parametrize("map", ["exponential", "gaussian", "linear", "squared"])
def test_kernel_by_kernel_component_wise_machines_agree(
    map: str,
    digits: Fixture,
    machine: Fixture,
    plain_case: Fixture,
    tmp_path: Path,
    compile_header: Fixture,
    require_agreement: Fixture,
) -> None:
    X, y = digits
    case = replace(plain_case, model=machine(X, y % 3, map, True, n_kernels=20), rows=X)
    require_agreement(case, *exported(case, tmp_path, compile_header, form="direct")(X))


@pytest.mark.parametrize("choice", PREPARATIONS, ids=lambda choice: "-".join(map(str, choice.values())))
def test_every_preparation_agrees(
    choice: dict[str, Any],
    digits: Fixture,
    machine: Fixture,
    plain_case: Fixture,
    tmp_path: Path,
    compile_header: Fixture,
    require_agreement: Fixture,
) -> None:
    X, y = digits
    rows = np.concatenate([X, np.zeros((1, X.shape[1])), X[:5] / 16384, X[:5] * 3])
    case = replace(plain_case, model=machine(X, y % 2, n_kernels=10, **choice), rows=rows)
    require_agreement(case, *exported(case, tmp_path, compile_header)(rows))


@pytest.mark.parametrize("componentwise", [False, True])
@pytest.mark.parametrize(("unit", "far"), [(2.0**60, 0.0), (2.0**-60, 0.0), (1.0, 2.0**18)])
def test_units_and_distance_from_zero_cost_no_digits(
    componentwise: bool,
    unit: float,
    far: float,
    digits: Fixture,
    machine: Fixture,
    plain_case: Fixture,
    tmp_path: Path,
    compile_header: Fixture,
    require_agreement: Fixture,
) -> None:
    X, y = digits
    X = X * unit + far
    case = replace(plain_case, model=machine(X, y % 2, "gaussian", componentwise, n_kernels=10, scaling="none"), rows=X)
    require_agreement(case, *exported(case, tmp_path, compile_header)(X))


def test_what_cannot_be_tabulated_is_exported_directly(
    untabulated: Fixture, tmp_path: Path, compile_header: Fixture, require_agreement: Fixture
) -> None:
    decide = exported(untabulated, tmp_path, compile_header)
    require_agreement(untabulated, *decide(untabulated.rows))
    with pytest.raises(ParameterError, match=r"too wide or too narrow|too small"):
        export_c(untabulated.model, tmp_path / "other.h", form="tables")


def test_rows_that_are_not_finite_have_no_class(plain_case: Fixture, tmp_path: Path, compile_header: Fixture) -> None:
    decide = exported(plain_case, tmp_path, compile_header)
    rows = np.repeat(plain_case.rows[:1], 3, axis=0)
    rows[0, 5], rows[1, 6], rows[2, 7] = np.nan, np.inf, -np.inf
    scores, codes = decide(rows)
    assert np.isnan(scores).all()
    assert codes.tolist() == [-1, -1, -1]


@pytest.fixture(scope="module")
def hostile(
    digits: Fixture, machine: Fixture, compile_header: Fixture, tmp_path_factory: pytest.TempPathFactory
) -> list[tuple[Any, Callable[..., Any]]]:
    """Machines, kernel by kernel and by tables, with what compiles of them."""
    X, y = digits
    found = []
    for number, choice in enumerate([("gaussian", False), ("linear", False), ("exponential", True), ("linear", True)]):
        model = machine(X, y % 3, *choice, n_kernels=8, scaling=("none", "unit-norm")[number % 2])
        path = tmp_path_factory.mktemp("hostile") / "model.h"
        export_c(model, path)
        found.append((model, compile_header(path, 3)))
    return found


@settings(max_examples=40)
@given(
    st.lists(st.floats(-(2.0**100), 2.0**100, width=32), min_size=64, max_size=64),
    st.sampled_from([0.0, 1e-30, 1e-6, 1.0]),
)
def test_hostile_rows_agree(hostile: Fixture, values: list[float], factor: float) -> None:
    row = np.float32(np.array(values) * factor)[None]
    for model, decide in hostile:
        expected = model.direct().decision_function(row)
        scores, codes = decide(row)
        np.testing.assert_allclose(scores, expected, rtol=0, atol=1e-5)
        assert codes[0] in (0, 1, 2)


@pytest.fixture(
    scope="module",
    params=[("exponential", False, None), ("linear", False, 5), ("gaussian", True, None)],
    ids=["kernels", "projection", "tables"],
)
def small(request: pytest.FixtureRequest, digits: Fixture, machine: Fixture) -> Any:
    """A small model of every kind of code."""
    map, componentwise, n_components = request.param
    return machine(digits[0], digits[1] % 3, map, componentwise, n_kernels=8, n_components=n_components)


def test_it_compiles_as_cpp_and_twice_in_one_program(small: Fixture, plain_case: Fixture, tmp_path: Path) -> None:
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("there is no g++")
    export_c(plain_case.model, tmp_path / "one.h", prefix="one")
    export_c(small, tmp_path / "two.h", prefix="Two_2")
    source = tmp_path / "both.cpp"
    source.write_text(
        '#include "one.h"\n#include "two.h"\n#include "one.h"\n'
        "int both(const float *x);\nint both(const float *x) { return one_predict(x) + Two_2_predict(x); }\n"
    )
    warnings = ["-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Werror"]
    subprocess.run([compiler, "-std=c++11", *warnings, "-c", source, "-o", tmp_path / "o"], check=True, timeout=120)


def test_it_allocates_nothing_and_writes_no_variable(small: Fixture, tmp_path: Path, gcc: str) -> None:
    symbols = shutil.which("nm")
    if symbols is None:
        pytest.skip("there is no nm")
    export_c(small, tmp_path / "model.h")
    source = tmp_path / "use.c"
    source.write_text(USE)
    subprocess.run([gcc, "-std=c99", "-Os", "-c", source, "-o", tmp_path / "use.o"], check=True, timeout=120)
    listed = subprocess.run([symbols, tmp_path / "use.o"], check=True, capture_output=True, text=True).stdout
    kinds = [line.split()[-2:] for line in listed.splitlines()]
    assert {name for kind, name in kinds if kind == "U"} <= {"expf", "sqrtf", "_GLOBAL_OFFSET_TABLE_"}
    # Names of classes are pointers, which a position-independent object has in data that are read-only once linked.
    assert {name for kind, name in kinds if kind in "BbDdCc"} <= {"mllkm_classes"}


@pytest.mark.parametrize("map", ["gaussian", "squared"])
def test_a_compiler_makes_vectors_of_its_loops(
    map: str, digits: Fixture, machine: Fixture, tmp_path: Path, gcc: str
) -> None:
    if platform.machine() not in ("x86_64", "aarch64"):
        pytest.skip(f"{platform.machine()} may have no vector unit")
    X, y = digits
    export_c(machine(X, y, map, False, n_kernels=10, n_components=20), tmp_path / "model.h")
    (tmp_path / "use.c").write_text(USE)
    command = [gcc, "-std=c99", "-O3", "-fopt-info-vec-optimized", "-c", "use.c"]
    said = subprocess.run(command, check=True, cwd=tmp_path, timeout=120, capture_output=True, text=True).stderr
    lines = (tmp_path / "model.h").read_text().splitlines()
    found = {int(number) for number in re.findall(r"model\.h:(\d+):.*loop vectorized", said)}
    for function, loops in (("mllkm_prepare", 2), ("mllkm_add", 1)):
        first = next(i for i, line in enumerate(lines, 1) if f"{function}(const" in line)
        last = next(i for i, line in enumerate(lines[first:], first) if line == "}")
        assert len([number for number in found if first < number <= last]) >= loops, said


def test_the_stack_is_what_the_header_says(small: Fixture, tmp_path: Path, gcc: str) -> None:
    stack_bytes = export_c(small, tmp_path / "model.h").stack_bytes
    assert stack_bytes is not None
    assert f" * stack       {stack_bytes} bytes of arrays" in (tmp_path / "model.h").read_text()
    (tmp_path / "use.c").write_text(USE)
    # Without optimisation, so that no array takes the place of another.
    subprocess.run([gcc, "-std=c99", "-O0", "-fstack-usage", "-c", "use.c"], check=True, cwd=tmp_path, timeout=120)
    lines = (tmp_path / "use.su").read_text().splitlines()
    assert all(line.endswith("static") for line in lines)
    assert stack_bytes <= sum(int(line.split("\t")[1]) for line in lines) <= stack_bytes + 800


def test_constants_read_back_as_the_same_bits(small: Fixture, tmp_path: Path) -> None:
    summary = export_c(small, tmp_path / "model.h", form="direct")
    text = (tmp_path / "model.h").read_text()
    found = re.search(r"static const float mllkm_gammas\[\d+\] = \{(.*?)\};", text, re.DOTALL)
    assert found is not None
    values = [np.float32(word.strip().removesuffix("f")) for word in found[1].split(",")]
    np.testing.assert_array_equal(values, machine_layout(small).gammas.astype(np.float32))
    n_floats = sum(int(size) for size in re.findall(r"static const float \w+\[(\d+)\]", text))
    assert summary.constant_bytes == 4 * n_floats


def test_the_header_says_what_it_holds(plain_case: Fixture, tmp_path: Path) -> None:
    export_c(plain_case.model, tmp_path / "model.h", prefix="parity")
    text = (tmp_path / "model.h").read_text(encoding="ascii")
    assert model_checksum(plain_case.model) in text
    assert "gap 0.005 over 90 candidate kernels, converged" in text
    assert "#define PARITY_N_FEATURES 64\n" in text
    assert "mllkm_" not in text


def test_labels_of_any_text_are_class_names(tiny_case: Fixture, tmp_path: Path, gcc: str) -> None:
    names = sorted(['a"\\??/b', "mllkm_é漢", "*/ x"])
    model = replace(tiny_case.model, classes=np.array(names))
    export_c(model, tmp_path / "model.h", prefix="it")
    source = tmp_path / "names.c"
    source.write_text(
        '#include <stdio.h>\n#include "model.h"\nint main(void)\n{\n'
        '    for (int i = -1; i <= IT_N_CLASSES; i++) printf("%s\\n", it_class_name(i));\n    return 0;\n}\n'
    )
    subprocess.run([gcc, "-std=c99", "-trigraphs", source, "-o", tmp_path / "names", "-lm"], check=True, timeout=120)
    shown = subprocess.run([tmp_path / "names"], check=True, capture_output=True).stdout.decode()
    assert shown.split("\n") == ["", *names, "", ""]


def test_names_of_features_are_a_comment_whatever_they_hold(tiny_case: Fixture, tmp_path: Path, gcc: str) -> None:
    hostile = ["*/ int broken;", "/* again", "line\nbreak \\", "a */* b", "tri ??/", "漢é", '"', "*/" * 3]
    d = tiny_case.model.n_features_in
    names = (hostile + [f"plain {number}" for number in range(d)])[:d]
    export_c(replace(tiny_case.model, feature_names=names), tmp_path / "model.h")
    comment = (tmp_path / "model.h").read_text("ascii").split(" */\n")[0]
    assert '  x[0]  "* / int broken;"' in comment
    assert all(f"  x[{number}]  " in comment for number in range(d))
    source = tmp_path / "main.c"
    source.write_text('#include "model.h"\nint main(void) { return mllkm_class_name(0) == 0; }\n')
    flags = ["-std=c99", "-trigraphs", "-Wall", "-Wextra", "-Werror"]
    subprocess.run([gcc, *flags, source, "-o", tmp_path / "main", "-lm"], check=True, timeout=120)


def test_a_larger_deviation_makes_smaller_tables(
    digits: Fixture, machine: Fixture, plain_case: Fixture, tmp_path: Path, compile_header: Fixture
) -> None:
    X, y = digits
    case = replace(plain_case, model=machine(X, y % 2, "gaussian", True), rows=X)
    fine = export_c(case.model, tmp_path / "fine.h")
    coarse = export_c(case.model, tmp_path / "coarse.h", deviation=1e-3)
    assert coarse.constant_bytes < 0.6 * fine.constant_bytes
    scores, _ = compile_header(tmp_path / "coarse.h", 1)(X)
    assert 1e-6 < np.abs(scores - case.expected).max() <= coarse.deviation <= 1e-3


@pytest.mark.parametrize("unit", [1e60, 1e-60])
def test_numbers_beyond_single_precision_are_refused(
    unit: float, digits: Fixture, machine: Fixture, tmp_path: Path
) -> None:
    X, y = digits
    model = machine(X * unit, y % 2, scaling="none", n_kernels=4)
    with pytest.raises(ParameterError, match="which single precision cannot hold: train with scaling"):
        export_c(model, tmp_path / "model.h")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("prefix", ["", "2nd", "a-b", "é", "a" * 32, "a\n"])
def test_a_prefix_that_is_no_name_is_refused(prefix: str, tiny_case: Fixture, tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match="cannot begin names in C"):
        export_c(tiny_case.model, tmp_path / "model.h", prefix=prefix)


@pytest.mark.parametrize("choice", QUANTILES, ids=lambda choice: "-".join(map(str, choice.values())))
def test_quantiles_of_features_with_long_tails_or_far_from_zero_agree(
    choice: dict[str, Any],
    table: Fixture,
    machine: Fixture,
    plain_case: Fixture,
    tmp_path: Path,
    compile_header: Fixture,
    require_agreement: Fixture,
) -> None:
    X, y = table
    rows = np.float32(np.concatenate([X, X[:9] * 1.5, X[:9] - 1000])).astype(np.float64)
    case = replace(plain_case, model=machine(X, y, n_kernels=10, **choice), rows=rows)
    require_agreement(case, *exported(case, tmp_path, compile_header)(rows))
