"""The errors of this package: each names the object it is about, and the remedy.

Every class carries the exit code that the command line ends with.
"""

from __future__ import annotations

import re

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


_LONGEST = 8000  # characters of a message, which may quote a file


class MLLKMError(Exception):
    """Base of all errors raised on purpose; `str(error)` is one line with the remedy, without control characters."""

    exit_code = 1
    _keep = ""  # control characters that messages may hold

    def __str__(self) -> str:
        # Messages name files, data sets and labels, whose text may come from anywhere.
        text = super().__str__()
        return printable(text if self._keep else re.sub(r"\s*[\r\n]\s*", " ", text), keep=self._keep, longest=_LONGEST)


class ParameterError(MLLKMError, ValueError):
    """A parameter has a value that cannot work."""

    exit_code = 2


class DataError(MLLKMError, ValueError):
    """A data set cannot be read or used for training: file, data set, row and column are named."""

    exit_code = 3


class BudgetError(MLLKMError, ValueError):
    """The memory budget is too small; the least one that works is named."""

    exit_code = 4


class ModelFileError(MLLKMError):
    """A model file is missing, damaged, or of a format that this version cannot read."""

    exit_code = 5


class CheckpointError(MLLKMError):
    """A checkpoint is missing, damaged, or of another training."""

    exit_code = 6


class ScratchError(MLLKMError):
    """The scratch or run folder cannot be written."""

    exit_code = 7


class ClusterError(MLLKMError):
    """The cluster cannot do the work: scheduler or workers are lost, or do not fit; a training can be resumed."""

    exit_code = 8


class JobFileError(MLLKMError, ValueError):
    """A job file cannot be run: file and line are named, a problem a line."""

    exit_code = 9
    _keep = "\n"


class FetchError(MLLKMError):
    """A data set of the catalogue is not there and cannot be fetched: every route is named with its reason."""

    exit_code = 10


class InterruptedTraining(MLLKMError):
    """Training was interrupted by a signal after its checkpoint was written."""

    exit_code = 130
