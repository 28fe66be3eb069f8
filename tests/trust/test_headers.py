"""A header that is not what it should be is refused by name, whatever its checksum says."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import zarr

from mllkm_scale import Dataset, load_model, train, train_path
from mllkm_scale.base.files.archive import read_archive
from mllkm_scale.errors import CheckpointError, DataError, MLLKMError, ModelFileError, ParameterError
from mllkm_scale.model import Model, save_model
from mllkm_scale.path.folder import read_path
from mllkm_scale.prediction import predict_file
from mllkm_scale.report.run_files import read_run

from .conftest import WRONG, fields_of, tampered, with_field


def outcome(call, error):
    """What a call gives, or None and the message of the error that it ends with."""
    try:
        return call(), ""
    except error as refusal:
        return None, str(refusal)


def is_one_line(message: str) -> bool:
    return message.isprintable() and len(message) < 1000


def test_every_wrong_field_of_a_model_is_refused_or_loads_as_another_model(small_run, tmp_path):
    header, _ = read_archive(small_run / "model.mllkm", kind="mllkm-model", version=9, error=MLLKMError)
    refused = 0
    for path in fields_of(header):
        for wrong in WRONG:

            def change(header, arrays, path=path, wrong=wrong):
                new = with_field(header, path, wrong)
                header.clear()
                header.update(new)

            tampered(small_run / "model.mllkm", tmp_path / "a.mllkm", "mllkm-model", change)
            model, message = outcome(lambda: load_model(tmp_path / "a.mllkm"), ModelFileError)
            assert is_one_line(message)
            refused += model is None
            if model is not None:
                save_model(model, tmp_path / "again")  # what is loaded can be written
                assert "\x1b" not in repr(model)
    assert refused > 100


@pytest.mark.parametrize(
    ("name", "wrong", "why"),
    [
        ("status", "done */\\\nint injected;", "certificate.status"),
        ("status", "converged\\", "certificate.status"),
        ("package_version", "1.0\x1b]0;owned\x07", "certificate.package_version"),
        ("n_open", 10**400, "certificate.n_open"),
        ("tol", "0.1", "certificate.tol"),
        ("extra", 1, "extra"),
        ("params", {"C": float("inf")}, "params"),
        ("params", {"deep": [[[[1]]]]}, "params.deep"),
    ],
)
def test_the_field_is_named(small_run, tmp_path, name, wrong, why):
    def change(header, arrays):
        header["certificate"][name] = wrong

    file = tampered(small_run / "model.mllkm", tmp_path / "a.mllkm", "mllkm-model", change)
    with pytest.raises(ModelFileError, match=why) as caught:
        load_model(file)
    assert is_one_line(str(caught.value))


def test_text_that_is_no_unicode_is_refused(small_run, tmp_path):
    path = tampered(small_run / "model.mllkm", tmp_path / "a.mllkm", "mllkm-model", lambda header, arrays: None)
    raw = path.read_bytes()
    classes = np.array(["other", "same"])
    assert raw.count(classes.tobytes()) == 1
    for point in (0x110000, 0xFFFFFFFF, 0xD800):
        array = classes.copy()
        array.view("u4")[-2] = point
        with pytest.raises(ParameterError, match="no Unicode"):
            tampered(path, tmp_path / "b.mllkm", "mllkm-model", lambda h, a, array=array: a.update(classes=array))


def test_a_record_that_no_file_may_hold_is_not_written(small_run, tmp_path):
    model = load_model(small_run / "model.mllkm")
    fields = {name: getattr(model, name) for name in model.__getstate__()}
    record = type(model.certificate)(**vars(model.certificate) | {"status": "done\n"})
    with pytest.raises(ParameterError, match="status"):
        save_model(Model(**fields | {"certificate": record}), tmp_path / "a")
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize("name", ["run.json", "plan.json", "evaluation.json", "history.jsonl"])
def test_every_wrong_field_of_a_file_of_the_report_is_refused_or_shown(small_run, tmp_path, name):
    from mllkm_scale.report import write_comparison
    from mllkm_scale.report.curves import plan_rows
    from mllkm_scale.report.facts import cards, data_facts, parameters, result_facts
    from mllkm_scale.report.learning import learning_section

    run = tmp_path / "run"
    run.mkdir()
    for file in ("model.mllkm", "run.json", "plan.json", "evaluation.json", "history.jsonl"):
        (run / file).write_bytes((small_run / file).read_bytes())
    lines = (run / name).read_text().splitlines() if name.endswith("jsonl") else [(run / name).read_text()]
    found = json.loads(lines[0])

    def tell():
        shown = read_run(run)
        learning_section(shown, None)
        return [cards(shown, None), data_facts(shown), result_facts(shown), parameters(shown), plan_rows(shown.plan)]

    for path in fields_of(found):
        if path[:1] in (("parameters",), ("sizes",), ("worker_rows",)) and len(path) > 2:
            continue
        if any(isinstance(step, int) and step > 1 for step in path):  # what a list holds is alike
            continue
        for wrong in WRONG:
            text = json.dumps(with_field(found, path, wrong))
            (run / name).write_text("\n".join([text, *lines[1:]]))
            told, message = outcome(tell, DataError)
            assert is_one_line(message)
            assert told or str(run / name) in message
    (run / name).write_text("[" * 10**5)
    if name.endswith("json"):
        with pytest.raises(DataError, match="damaged"):
            write_comparison([run, small_run], out=tmp_path / "page.html")


def test_every_wrong_field_of_path_json_is_refused_or_read(tmp_path):
    point = {
        "name": "C=1", "parameter": "C", "value": 1.0, "n_kernels": 3, "error": 0.1, "row_us": 2.0,
        "model_bytes": 1000, "multiply_adds": 100, "gap": 0.01, "status": "converged", "elapsed_s": 1.0,
    }  # fmt: skip
    good = {"parameter": "C", "values": [1.0], "seed": 0, "data": {"name": "a"}, "points": [point], "knee": "C=1"}
    (tmp_path / "path.json").write_text(json.dumps(good))
    assert read_path(tmp_path)[0][0].name == "C=1"
    refused = 0
    for path in fields_of(good):
        for wrong in WRONG:
            (tmp_path / "path.json").write_text(json.dumps(with_field(good, path, wrong)))
            read, message = outcome(lambda: read_path(tmp_path), DataError)
            assert is_one_line(message)
            refused += read is None
    assert refused > 150


def state_change(name, change):
    def apply(header, arrays):
        arrays[name] = change(arrays[name].copy())

    return apply


def header_change(name, value):
    return lambda header, arrays: header.update({name: value})


def scaled(factor):
    return lambda values: values * factor


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (state_change("machine0_duals", lambda a: a - 1.0), "machine|duals"),
        (state_change("machine0_duals", lambda a: a + 1e6), "duals"),
        (state_change("machine0_duals", lambda a: a[:-1]), "duals"),
        (state_change("machine0_duals", lambda a: np.full_like(a, np.nan)), "duals"),
        (state_change("machine0_weights", scaled(2.0)), "weights"),
        (state_change("machine0_weights", scaled(-1.0)), "weights"),
        (state_change("machine0_best_weights", lambda a: a[::-1].copy()), "P is said to be"),
        (state_change("machine0_best_duals", scaled(0.5)), "P is said to be"),
        (state_change("machine0_active", lambda a: a + 10**6), "active"),
        (state_change("machine0_active", lambda a: a * 0), "active"),
        (state_change("machine0_working", lambda a: a.astype(float)), "working"),
        (state_change("machine0_bound", lambda a: a + 1.0), "D"),
        (lambda header, arrays: arrays.pop("machine0_pool"), "pool"),
        (header_change("objectives", [[1.0, 0.9]]), "P 1 and D"),
        (header_change("objectives", []), "objectives"),
        (header_change("objectives", [[1.0, "x"]]), "objectives"),
        (header_change("elapsed_s", -1.0), "elapsed_s"),
        (header_change("elapsed_s", None), "elapsed_s"),
        (header_change("round", -3), "round"),
        (header_change("choice", {"C": -1}), "choice"),
        (header_change("seed", True), "seed"),
    ],
)
def test_a_crafted_checkpoint_is_not_gone_on_with(small_run, small_data, tmp_path, change, why):
    run = tmp_path / "run"
    run.mkdir()
    (run / "history.jsonl").write_bytes((small_run / "history.jsonl").read_bytes())
    tampered(small_run / "checkpoint.npz", run / "checkpoint.npz", "mllkm-checkpoint", change)
    before = (run / "checkpoint.npz").read_bytes()
    with pytest.raises(CheckpointError, match=why) as caught, Dataset.open(small_data) as data:
        train(data, run_dir=run, resume=True, anchors="all", C=1.0, max_rounds=3, tol=1e-4, n_jobs=1, report=False)
    assert is_one_line(str(caught.value))
    assert "--overwrite" in str(caught.value)
    assert (run / "checkpoint.npz").read_bytes() == before


def test_a_checkpoint_that_bounds_more_than_its_duals_prove_is_refused(small_run, small_data, tmp_path):
    run = tmp_path / "run"
    run.mkdir()

    def change(header, arrays):
        (primal, _), *_ = header["objectives"]
        header["objectives"] = [[primal, primal * 0.99999]]
        arrays["machine0_bound"] = np.asarray(primal * 0.99999)

    tampered(small_run / "checkpoint.npz", run / "checkpoint.npz", "mllkm-checkpoint", change)
    with pytest.raises(CheckpointError, match="D is said to be"), Dataset.open(small_data) as data:
        train(data, run_dir=run, resume=True, anchors="all", C=1.0, max_rounds=3, tol=1e-4, n_jobs=1, report=False)


def test_an_infinite_P_does_not_leave_D_unbounded(small_run, small_data, tmp_path):
    run = tmp_path / "run"
    run.mkdir()

    def change(header, arrays):
        header["objectives"] = [[float("inf"), 1e300]]
        arrays["machine0_best_primal"], arrays["machine0_bound"] = np.asarray(np.inf), np.asarray(1e300)

    tampered(small_run / "checkpoint.npz", run / "checkpoint.npz", "mllkm-checkpoint", change)
    with pytest.raises(CheckpointError, match="P is said to be inf"), Dataset.open(small_data) as data:
        train(data, run_dir=run, resume=True, anchors="all", C=1.0, max_rounds=3, tol=1e-4, n_jobs=1, report=False)


SIZES = {
    "kernel_counts": [4, 2],
    "anchors": "all",
    "C": 1.0,
    "tol": 0.01,
    "max_rounds": 4,
    "n_jobs": 1,
    "report": False,
}


@pytest.fixture(scope="module")
def small_path(tmp_path_factory, small_data):
    """The folder of a path of two points."""
    folder = tmp_path_factory.mktemp("paths") / "path"
    with Dataset.open(small_data) as data:
        train_path(data, 0.3, run_dir=folder, **SIZES)
    return folder


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (state_change("machine0_best_primal", scaled(0.5)), "P is said to be"),
        (state_change("machine0_best_primal", lambda a: a * 0 + np.inf), "P is said to be inf"),
        (state_change("machine0_best_weights", lambda a: a[::-1].copy()), "P is said to be"),
        (state_change("machine0_bound", lambda a: a + 1e6), "D is said to be"),
        (state_change("proof0_dual", lambda a: a * 1.5), "a proof is said to bound by"),
        (state_change("proof0_duals", lambda a: a - 1.0), "proof0_duals"),
    ],
)
def test_a_crafted_end_of_a_point_is_not_gone_on_with(small_path, small_data, tmp_path, change, why):
    path = tmp_path / "path"
    shutil.copytree(small_path, path)
    tampered(small_path / "max_kernels=4" / "end.npz", path / "max_kernels=4" / "end.npz", "mllkm-checkpoint", change)
    with pytest.raises(CheckpointError, match=why) as caught, Dataset.open(small_data) as data:
        train_path(data, 0.3, run_dir=path, resume=True, **SIZES)
    assert is_one_line(str(caught.value))
    assert "--overwrite" in str(caught.value)


def test_every_schema_is_made_and_freed_without_a_crash():
    code = """
from mllkm_scale.base.schemas import conform, fields, headers, run_files
import msgspec
kinds = {kind for module in (fields, headers, run_files) for kind in vars(module).values() if isinstance(kind, type)}
for kind in kinds:
    if issubclass(kind, msgspec.Struct) and kind is not msgspec.Struct:
        try:
            conform({"x": 1}, kind)
        except ValueError:
            pass
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_history_line_with_a_wrong_field_ends_the_history(small_run, tmp_path):
    run = Path(tmp_path / "run")
    run.mkdir()
    lines = (small_run / "history.jsonl").read_text().splitlines()
    wrong = json.loads(lines[1])
    for name in ("number", "rss_bytes", "gap"):
        (run / "history.jsonl").write_text("\n".join([lines[0], json.dumps(wrong | {name: "x"})]))
        assert len(read_run(run).rounds) == 1


@pytest.mark.parametrize(("at", "value"), [(6, 127), (8, 1), (10, 99)], ids=["version", "encrypted", "compression"])
def test_rows_in_an_archive_that_cannot_be_unpacked_are_refused_by_name(small_run, tmp_path, at, value):
    source = tmp_path / "rows.npz"
    np.savez(source, X=np.zeros((3, 2)))
    content = bytearray(source.read_bytes())
    content[content.index(b"PK\x01\x02") + at] = value  # in the directory of the archive
    source.write_bytes(content)
    with pytest.raises(DataError, match=r"rows\.npz"):
        predict_file(load_model(small_run / "model.mllkm"), source, tmp_path / "out.csv")
    assert not (tmp_path / "out.csv").exists()


@pytest.mark.parametrize(
    ("rows", "why"), [(10**400, "declares more than"), (10**14, "give one label per row")], ids=["damaged", "too many"]
)
def test_rows_that_zarr_declares_are_checked_before_memory_is_reserved(tmp_path, rows, why):
    group = zarr.open_group(tmp_path / "data.zarr", mode="w")
    group.create_array("X", data=np.zeros((4, 2)))
    group.create_array("y", data=np.array([0, 1, 0, 1]))
    file = tmp_path / "data.zarr" / "X" / "zarr.json"
    header = json.loads(file.read_text())
    header["shape"][0] = rows
    file.write_text(json.dumps(header))
    with pytest.raises(DataError, match=why), Dataset.open(tmp_path / "data.zarr") as data:
        data.label_codes()
