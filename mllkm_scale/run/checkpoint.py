"""The state after a round, from which a training continues with the same bits.

A checkpoint is an archive file. Its fingerprint stands for the data and the parameters: what one training left
is never continued by another.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from numpy.typing import NDArray

from mllkm_scale.base.archive import read_archive, write_archive
from mllkm_scale.base.schemas import conform
from mllkm_scale.errors import CheckpointError, ParameterError

__all__ = ["ANEW", "checkpoint_seed", "fitting", "load_checkpoint", "save_checkpoint"]

KIND, VERSION = "mllkm-checkpoint", 1
ANEW = "train anew with --overwrite (overwrite=True)"


def save_checkpoint(
    path: str | os.PathLike[str],
    *,
    fingerprint: str,
    round: int,
    header: Mapping[str, Any],
    arrays: Mapping[str, NDArray[Any]],
) -> None:
    """Write the state after a round; the checkpoint before it stands until this one is whole.

    Parameters
    ----------
    path : path
    fingerprint : str
        Stands for the data and the parameters, as the caller computes it.
    round : int
        Rounds done.
    header : mapping
        Scalars of the state, as JSON holds them; "fingerprint" and "round" are taken.
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
    """The seed of the training that wrote the checkpoint, for one that was started without a seed of its own."""
    header, _ = read_archive(path, kind=KIND, version=VERSION, error=CheckpointError)
    if type(header.get("seed")) is not int or header["seed"] < 0:
        raise CheckpointError(f"{path} names no seed, so it is damaged: {ANEW}")
    return int(header["seed"])


def load_checkpoint(
    path: str | os.PathLike[str], fingerprint: str, header_kind: type[Any] | None = None
) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Header, with "round" and "fingerprint" in it, and arrays as they were saved.

    The header is one of `header_kind` (see `schemas`), if that is given; what the arrays hold, the caller looks at.

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
        raise CheckpointError(f"{error}; or {ANEW}") from error
    if not isinstance(header.get("round"), int) or not isinstance(header.get("fingerprint"), str):
        raise CheckpointError(f"{path} names no round or no fingerprint, so it is damaged: {ANEW}")
    if header["fingerprint"] != fingerprint:
        raise CheckpointError(
            f"{path} belongs to a training on other data or with other parameters: resume it with those that"
            f" it was started with, or {ANEW}"
        )
    if header_kind is not None:
        with fitting(path):
            conform(header, header_kind)
    return header, arrays


@contextmanager
def fitting(path: str | os.PathLike[str]) -> Iterator[None]:
    """Block that looks at what a checkpoint holds: a ValueError in it is reported with the file and the remedy."""
    try:
        yield
    except ValueError as error:
        raise CheckpointError(f"{path} holds what no training can have left ({error}): {ANEW}") from None
