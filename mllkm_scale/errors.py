"""The errors of this package: each message names the object and the remedy.

Every class has the exit code of the command line.
"""

from __future__ import annotations

import re
from typing import Any

from mllkm_scale.printable import printable

__all__ = [
    "BudgetError",
    "CheckpointError",
    "ClusterError",
    "DataError",
    "FetchError",
    "InterruptedTraining",
    "JobFileError",
    "MLLKMError",
    "ModelFileError",
    "ParameterError",
    "ScratchError",
]


_LONGEST = 12_000  # characters of a message, which may quote a file


class MLLKMError(Exception):
    """Base class of all errors that the package raises on purpose.

    `str(error)` is one line with the remedy, without control characters.
    """

    exit_code = 1
    _keep = ""  # control characters that messages may hold

    def __str__(self) -> str:
        # Messages name files, data sets and labels, whose text may come from anywhere.
        text = super().__str__()
        return printable(text if self._keep else re.sub(r"\s*[\r\n]\s*", " ", text), keep=self._keep, longest=_LONGEST)


class ParameterError(MLLKMError, ValueError):
    """A parameter has an invalid value."""

    exit_code = 2


class DataError(MLLKMError, ValueError):
    """A data set cannot be read or used for training; the message names file, data set, row and column."""

    exit_code = 3


class BudgetError(MLLKMError, ValueError):
    """The memory budget is too small; the message names the smallest one that works."""

    exit_code = 4


class ModelFileError(MLLKMError):
    """A model file is missing, damaged, or of a format that this version cannot read."""

    exit_code = 5


class CheckpointError(MLLKMError):
    """A checkpoint is missing, damaged, or belongs to another training run."""

    exit_code = 6


class ScratchError(MLLKMError):
    """The scratch or run folder cannot be written."""

    exit_code = 7


class ClusterError(MLLKMError):
    """The cluster cannot do the work: scheduler or workers are lost or unsuitable. The training can be resumed."""

    exit_code = 8


class JobFileError(MLLKMError, ValueError):
    """A job file cannot be run; the message has one line per problem and names file and line."""

    exit_code = 9
    _keep = "\n"


class FetchError(MLLKMError):
    """A data set of the catalogue cannot be found or fetched; the message names every route with its reason."""

    exit_code = 10


class InterruptedTraining(MLLKMError):
    """A signal interrupted the training after its checkpoint was written.

    `result` is the training so far, with the model of the machines so far; None if there is no model yet.
    """

    exit_code = 130
    result: Any = None
