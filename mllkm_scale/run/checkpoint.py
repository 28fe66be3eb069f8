"""The state after a round, from which a training run continues with the same bits.

A checkpoint is an archive file. Its fingerprint identifies the data and the parameters, so that a training run cannot
continue the checkpoint of another one.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from numpy.typing import NDArray

from mllkm_scale.base.files.archive import read_archive, write_archive
from mllkm_scale.base.schemas import conform
from mllkm_scale.errors import CheckpointError, ParameterError

__all__ = ["START_AGAIN", "checkpoint_seed", "fitting", "load_checkpoint", "save_checkpoint"]

KIND, VERSION = "mllkm-checkpoint", 1
START_AGAIN = "start again with --overwrite (overwrite=True)"


def save_checkpoint(
    path: str | os.PathLike[str],
    *,
    fingerprint: str,
    round: int,
    header: Mapping[str, Any],
    arrays: Mapping[str, NDArray[Any]],
) -> None:
    """Write the state after a round; the previous checkpoint stays until this one is complete.

    Parameters
    ----------
    path : path
    fingerprint : str
        Identifies the data and the parameters; computed by the caller.
    round : int
        Number of completed rounds.
    header : mapping
        Scalars of the state, as JSON values; "fingerprint" and "round" are reserved.
    arrays : mapping
        Arrays of the state by name.

    Examples
    --------
    >>> import tempfile, numpy as np
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = f"{folder}/checkpoint.npz"
    ...     state = {"duals": np.ones(2)}
    ...     save_checkpoint(path, fingerprint="f", round=3, header={"gap": 0.1}, arrays=state)
    ...     header, arrays = load_checkpoint(path, "f")
    >>> header["round"], header["gap"], arrays["duals"].tolist()
    (3, 0.1, [1.0, 1.0])
    """
    own = {"fingerprint": fingerprint, "round": round}
    if taken := sorted(own.keys() & header.keys()):
        raise ParameterError(f"{taken[0]!r} is an entry of every checkpoint: give it as an argument")
    write_archive(path, kind=KIND, version=VERSION, header={**header, **own}, arrays=arrays)


def checkpoint_seed(path: str | os.PathLike[str]) -> int:
    """The seed in the checkpoint, for a training run that was started without a seed."""
    header, _ = read_archive(path, kind=KIND, version=VERSION, error=CheckpointError)
    if type(header.get("seed")) is not int or header["seed"] < 0:
        raise CheckpointError(f"{path} names no seed, so it is damaged: {START_AGAIN}")
    return int(header["seed"])


def load_checkpoint(
    path: str | os.PathLike[str], fingerprint: str, header_kind: type[Any] | None = None
) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """The header, including "round" and "fingerprint", and the arrays.

    The header is checked against `header_kind` (see `schemas`), if given; the caller checks the arrays.

    Raises
    ------
    CheckpointError
        If there is none, if it is damaged or of a newer format, or if its fingerprint differs.
    """
    if not os.path.exists(path):
        raise CheckpointError(f"{path} does not exist, so there is nothing to resume: train without --resume")
    try:
        header, arrays = read_archive(path, kind=KIND, version=VERSION, error=CheckpointError)
    except CheckpointError as error:
        raise CheckpointError(f"{error}; or {START_AGAIN}") from error
    if not isinstance(header.get("round"), int) or not isinstance(header.get("fingerprint"), str):
        raise CheckpointError(f"{path} names no round or no fingerprint, so it is damaged: {START_AGAIN}")
    if header["fingerprint"] != fingerprint:
        raise CheckpointError(
            f"{path} belongs to a training run on other data or with other parameters: resume it with those that"
            f" it was started with, or {START_AGAIN}"
        )
    if header_kind is not None:
        with fitting(path):
            conform(header, header_kind)
    return header, arrays


@contextmanager
def fitting(path: str | os.PathLike[str]) -> Iterator[None]:
    """Context of checks of a checkpoint: a ValueError in it is reported with the file and the remedy."""
    try:
        yield
    except ValueError as error:
        raise CheckpointError(f"{path} holds what no training can have left ({error}): {START_AGAIN}") from None
