"""zarr and Parquet by URL, opened by fsspec: the bits of a file, by every command, on workers, no credentials kept."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fsspec
import h5py
import numpy as np
import pyarrow as pa
import pytest
import zarr
from click.testing import CliRunner
from pyarrow import parquet

from mllkm_scale import Dataset, predict_file, train
from mllkm_scale.base.location import URL
from mllkm_scale.cli import cli
from mllkm_scale.data import convert
from mllkm_scale.errors import DataError, ParameterError
from mllkm_scale.model import evaluate

SETTINGS: dict[str, Any] = {"anchors": "all", "n_jobs": 2}
NAMES = ["length", "width", "petal length", "petal width"]
SECRET = "loopback-secret-key"


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    """The URL of a bucket of a server on the loopback, to which the environment leads."""
    pytest.importorskip("s3fs")
    server = pytest.importorskip("moto.server").ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
        patch.setenv("AWS_ACCESS_KEY_ID", "loopback")
        patch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        system = fsspec.filesystem("s3")
        system.mkdir("irises")
        yield "s3://irises"
        with warnings.catch_warnings():  # sessions of s3fs that nobody closes
            warnings.simplefilter("ignore", ResourceWarning)
            system.clear_instance_cache()
            del system
            gc.collect()
    server.stop()


@pytest.fixture(params=["memory", "file", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where something can be stored."""
    if request.param == "s3":
        return f"{request.getfixturevalue('s3')}/{tmp_path.name}"
    return f"memory://{tmp_path.name}" if request.param == "memory" else f"file://{tmp_path}/store"


@pytest.fixture
def iris(real_data: Callable[[str], tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    return real_data("iris")


@pytest.fixture
def duals(iris: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    return train(Dataset.from_arrays(*iris), **SETTINGS).duals


def call(*arguments: str) -> str:
    """What a command prints."""
    result = CliRunner().invoke(cli, arguments)
    assert result.exit_code == 0, result.output
    return result.output


def store_zarr(url: str, X: np.ndarray, y: np.ndarray) -> str:
    options = {"auto_mkdir": True} if url.startswith("file") else None
    store = zarr.storage.FsspecStore.from_url(f"{url}/iris.zarr", storage_options=options)
    group = zarr.open_group(store, mode="w")
    group.create_array("X", data=X, chunks=(40, 3))
    group.create_array("y", data=y, chunks=(70,))
    group.create_array("feature_names", data=np.array(NAMES, dtype=np.dtypes.StringDType()))
    group.create_array("X_test", data=X[::3])
    group.create_array("y_test", data=y[::3])
    return f"{url}/iris.zarr"


def store_parquet(url: str, X: np.ndarray, y: np.ndarray, parts: int = 1) -> str:
    """A file, or a folder of eleven and more files, in row groups of 40 rows."""
    table = pa.table([*X.T, np.array(["setosa", "versicolor", "virginica"])[y]], names=[*NAMES, "kind"])
    target = f"{url}/iris.parquet"
    for part in range(parts):
        path = target if parts == 1 else f"{target}/part.{part}.parquet"
        edges = len(X) * part // parts, len(X) * (part + 1) // parts
        with fsspec.open(path, "wb", auto_mkdir=True) as file:
            parquet.write_table(table.slice(edges[0], edges[1] - edges[0]), file, row_group_size=40)
    return target


def test_training_has_the_bits_of_a_file(place, iris, duals):
    with Dataset.open(store_zarr(place, *iris)) as data:
        assert (data.n_rows, data.feature_names, data.name) == (150, tuple(NAMES), "iris.zarr:X")
        assert np.array_equal(train(data, **SETTINGS).duals, duals)
    for parts in (1, 12):
        with Dataset.open(store_parquet(f"{place}-{parts}", *iris, parts), y="kind") as data:
            assert (data.n_rows, data.feature_names, data.columns) == (150, tuple(NAMES), None)
            result = train(data, **SETTINGS)
            assert np.array_equal(result.duals, duals)
            assert result.model.classes.tolist() == ["setosa", "versicolor", "virginica"]


def test_parquet_is_converted_evaluated_and_predicted(place, iris, tmp_path):
    url = store_parquet(place, *iris, parts=3)
    convert(url, tmp_path / "iris.h5", label_column="kind")
    with Dataset.open(tmp_path / "iris.h5") as file, Dataset.open(url, y="kind") as data:
        assert np.array_equal(file.part(0, 150), data.part(0, 150))
        assert np.array_equal(file.labels(), data.labels())
        model = train(file, **SETTINGS).model
        assert evaluate(model, data).confusion.tolist() == evaluate(model, file).confusion.tolist()
    summary = predict_file(model, url, tmp_path / "predicted.h5")
    assert summary.ignored == ("kind",)
    zarr_url = store_zarr(place, *iris)
    predict_file(model, zarr_url, tmp_path / "other.h5")
    with h5py.File(tmp_path / "predicted.h5") as one, h5py.File(tmp_path / "other.h5") as other:
        assert np.array_equal(one["prediction"].asstr()[:], model.predict(iris[0]))
        assert np.array_equal(other["prediction"].asstr()[:], model.predict(iris[0]))


def test_a_table_in_parquet_is_what_its_conversion_is(tmp_path):
    rng = np.random.default_rng(0)
    missing, values = rng.random(200) < 0.1, rng.random(200).tolist()
    size = [None if absent else value for absent, value in zip(missing, values, strict=True)]
    colour = rng.choice(["red", "green", "blue"], 200).tolist()
    label = [("yes" if (s or 0) > 0.5 or c == "red" else "no") for s, c in zip(size, colour, strict=True)]
    path = tmp_path / "table.parquet"
    table = pa.table({"size": size, "colour": pa.array(colour).dictionary_encode(), "count": rng.integers(0, 9, 200)})
    parquet.write_table(table.append_column("label", pa.array(label)), path, row_group_size=33)
    convert(path, tmp_path / "table.h5", label_column="label")
    with Dataset.open(tmp_path / "table.h5") as file, Dataset.open(path, y="label") as data:
        assert data.columns == file.columns
        assert np.array_equal(data.part(0, 200), file.part(0, 200), equal_nan=True)
        assert np.array_equal(data.part(30, 70), file.part(30, 70), equal_nan=True)
        assert np.array_equal(train(data, **SETTINGS).duals, train(file, **SETTINGS).duals)


def test_the_commands_take_urls_and_keep_no_credentials(s3, iris, tmp_path):
    url, table = store_zarr(s3, *iris), store_parquet(s3, *iris)
    run = str(tmp_path / "run")
    assert "inner form" in call("plan", url, "--anchors", "all")
    call("train", url, "--out", run, "--anchors", "all")
    assert "accuracy" in call("evaluate", run, url)
    call("predict", run, url, "--out", str(tmp_path / "labels.csv"))
    call("predict", run, table, "--out", str(tmp_path / "same.csv"))
    assert (tmp_path / "labels.csv").read_text() == (tmp_path / "same.csv").read_text()
    call("train", table, "--label-column", "kind", "--out", f"{run}-of-a-table", "--anchors", "all")
    call("convert", table, str(tmp_path / "iris.h5"), "--label-column", "kind")
    for path in tmp_path.rglob("*"):
        assert path.is_dir() or SECRET.encode() not in path.read_bytes()


def test_workers_open_a_url_themselves(s3, iris, duals, tmp_path):
    from mllkm_scale.cluster import ClusterSpec, open_client

    with open_client(ClusterSpec("local", workers=1), memory_budget=600_000_000, timeout_s=60) as client:
        for url, y in ((store_zarr(s3, *iris), "y"), (store_parquet(s3, *iris), "kind")):
            with Dataset.open(url, y=y) as data:
                assert np.array_equal(train(data, client=client, **SETTINGS).duals, duals)
        with Dataset.open(store_zarr("memory://here", *iris)) as data:  # of this process alone: its rows are copied
            assert data.path is None
            assert np.array_equal(train(data, client=client, **SETTINGS).duals, duals)


def test_secrets_of_a_url_are_refused_or_hidden():
    with pytest.raises(ParameterError, match=r"s3://bucket/train.zarr has a name or password in it") as found:
        Dataset.open("s3://me:password@bucket/train.zarr")
    assert "password@" not in str(found.value)
    url = URL("http://127.0.0.1:9/train.parquet?signature=secret")
    assert "secret" not in f"{url} {url!r} {url.name}"
    with pytest.raises(DataError, match=r"http://127\.0\.0\.1:9/train\.parquet cannot be") as found:
        Dataset.open(url.text)
    assert "secret" not in str(found.value)


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("memory://nothing/train.zarr", "memory://nothing/train.zarr .*no zarr group"),
        ("memory://nothing/train.parquet", "memory://nothing/train.parquet cannot be read"),
        ("nowhere://bucket/train.zarr", "nowhere://bucket/train.zarr cannot be read .*Protocol not known"),
        ("abfs://container/train.zarr", "cannot be opened .*install"),
    ],
)
def test_what_cannot_be_opened_is_named(url, said):
    with pytest.raises(DataError, match=said):
        Dataset.open(url)


def test_what_is_no_zarr_or_parquet_is_copied_first(tmp_path):
    with pytest.raises(DataError, match=r"memory://a/train\.csv is csv, which is not read by URL: copy it first"):
        convert("memory://a/train.csv", tmp_path / "train.h5")


def test_files_of_one_folder_have_the_same_columns(tmp_path):
    parquet.write_table(pa.table({"a": [1.0], "y": [0]}), tmp_path / "one.parquet")
    folder = tmp_path / "all.parquet"
    folder.mkdir()
    parquet.write_table(pa.table({"a": [1.0], "y": [0]}), folder / "0.parquet")
    parquet.write_table(pa.table({"b": [1.0], "y": [0]}), folder / "1.parquet")
    with pytest.raises(DataError, match=r"1.parquet has other columns"):
        Dataset.open(folder)
    with pytest.raises(DataError, match="has no column 'kind': it has a, y; name the label"):
        Dataset.open(tmp_path / "one.parquet", y="kind")
    with pytest.raises(ParameterError, match="x='Z' does not belong to Parquet"):
        Dataset.open(tmp_path / "one.parquet", x="Z")
    (tmp_path / "empty.parquet").mkdir()
    with pytest.raises(DataError, match="has no Parquet files"):
        Dataset.open(tmp_path / "empty.parquet")
