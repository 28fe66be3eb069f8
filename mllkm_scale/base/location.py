"""Locations of data: a path, or a URL that fsspec opens, such as s3://bucket/train.zarr; names of their formats.

A URL is opened by each process that reads it, with the environment and configuration of that process. Credentials are
not part of a URL, so that they do not get into a run folder or a log.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args
from urllib.parse import unquote, urlsplit

from mllkm_scale.errors import DataError, MLLKMError, ParameterError

__all__ = ["FORMATS", "URL", "Format", "Location", "as_location", "is_parquet"]

Format = Literal["csv", "tsv", "libsvm", "npz", "npy", "idx", "parquet"]
FORMATS: tuple[Format, ...] = get_args(Format)
"""The formats of files that can be converted."""

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*(::|://)")
_PARQUET = (".parquet", ".pq")


@dataclass(frozen=True)
class URL:
    """A URL that fsspec opens, with the attributes of a path that are needed.

    Examples
    --------
    >>> url = URL("https://host/folder/train.parquet?signature=secret")
    >>> url.name, url.suffix, str(url)
    ('train.parquet', '.parquet', 'https://host/folder/train.parquet')
    """

    text: str

    def __post_init__(self) -> None:
        if "@" in urlsplit(self.text).netloc:
            raise ParameterError(
                f"{self} has a name or password in it: give credentials by the environment or the configuration of"
                " fsspec, where runs and logs do not keep them"
            )

    @property
    def name(self) -> str:
        """The last part of its path."""
        return unquote(urlsplit(self.text).path.rstrip("/").rpartition("/")[2]) or urlsplit(self.text).netloc

    @property
    def suffix(self) -> str:
        return os.path.splitext(self.name)[1]

    @property
    def parent(self) -> URL:
        return URL(str(self).rstrip("/").rpartition("/")[0])

    @property
    def shared(self) -> bool:
        """Whether other processes can also open it."""
        return not self.text.startswith("memory:")

    def is_dir(self) -> bool:
        with self.opening() as (system, path):
            return bool(system.isdir(path))

    def exists(self) -> bool:
        with self.opening() as (system, path):
            return bool(system.exists(path))

    @contextmanager
    def opening(self) -> Iterator[tuple[Any, str]]:
        """Context with the file system and the path in it; errors become a DataError without secrets."""
        try:
            from fsspec.core import url_to_fs

            yield url_to_fs(self.text)
        except MLLKMError:
            raise
        except ImportError as error:
            raise DataError(
                f"{self} cannot be opened ({_one_line(error)}): install that library, in the workers, too"
            ) from None
        except Exception as error:  # every file system of fsspec has its own errors
            why = re.sub(r"\?[^\s'\")]*", "?...", _one_line(error)) or type(error).__name__
            raise DataError(
                f"{self} cannot be read ({why}): check the URL, and that this process has the credentials"
            ) from None

    def __str__(self) -> str:
        parts = urlsplit(self.text)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"

    def __repr__(self) -> str:
        return f"URL({str(self)!r})"


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())


Location = Path | URL


def as_location(given: str | os.PathLike[str] | URL) -> Location:
    """A path, or a URL if the text has a scheme; file:// is a path.

    >>> as_location("train.h5"), as_location("s3://bucket/train.zarr"), as_location("file:///data/train.h5")
    (PosixPath('train.h5'), URL('s3://bucket/train.zarr'), PosixPath('/data/train.h5'))
    """
    if isinstance(given, URL):
        return given
    text = os.fspath(given)
    if not _SCHEME.match(text):
        return Path(text)
    return Path(unquote(urlsplit(text).path)) if text.startswith("file://") else URL(text)


def is_parquet(location: Location) -> bool:
    """Whether the name is that of a Parquet file, or of a folder of such files."""
    return location.suffix.lower() in _PARQUET
