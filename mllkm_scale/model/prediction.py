"""Prediction from file to file, chunk by chunk; the target appears whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import h5py
import numpy as np
from numpy.typing import NDArray

from mllkm_scale.data.converters.writer import HDF5Writer
from mllkm_scale.data.dataset import Dataset
from mllkm_scale.errors import DataError, ParameterError
from mllkm_scale.model.blocks import Rows
from mllkm_scale.model.decision import decide
from mllkm_scale.model.decision_pass import decision_pass
from mllkm_scale.model.evaluation import Evaluation, evaluate
from mllkm_scale.model.files import model_checksum
from mllkm_scale.model.labels import label_codes
from mllkm_scale.model.model import Model

if TYPE_CHECKING:
    from mllkm_scale.cluster import Client

__all__ = ["Evaluation", "PredictSummary", "evaluate", "predict_file"]


@dataclass(frozen=True)
class PredictSummary:
    """What a prediction wrote; `counts` says how often each class was predicted."""

    source: Path
    target: Path
    n_rows: int
    classes: tuple[Any, ...]
    counts: tuple[int, ...]
    scores: bool
    model_checksum: str
    size_bytes: int


def predict_file(
    model: Model,
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    x: str = "X",
    scores: bool = False,
    overwrite: bool = False,
    progress: Callable[[int, int], object] | None = None,
    n_jobs: int | None = None,
    client: Client | None = None,
) -> PredictSummary:
    """Predict the rows of an HDF5 file or a zarr group into an HDF5 file.

    The target holds the data set ``prediction``; its attributes ``classes`` and ``model_checksum`` say which
    model made it. Memory is bounded by a chunk of the source.

    Parameters
    ----------
    model : Model
        ``model.direct()`` to use no tables, here and on the workers.
    source, target : path
        The target ends with .h5 or .hdf5.
    x : str
        Name of the data set of the samples.
    scores : bool
        Also write the decision function, as the data set ``scores``.
    overwrite : bool
        Replace a target that exists.
    progress : callable, optional
        Called as ``progress(done, total)`` after each chunk, in rows.
    n_jobs : int, optional
        Threads; -1 for one a core.
    client : distributed.Client, optional
        Its workers predict, on the source by its path; they and this process must see the folder of the target.

    Raises
    ------
    ClusterError
        If the workers or their scheduler are lost.
    DataError
        If the source cannot be read or does not fit the model.
    ParameterError
        If the target exists, is the source, or is not named as an HDF5 file.
    ScratchError
        If the target cannot be written.

    Examples
    --------
    >>> import tempfile
    >>> from mllkm_scale import MLLKMClassifier
    >>> X, y = [[0.0, 0.0], [0.0, 1.0], [3.0, 3.0], [3.0, 4.0]], [1, 1, 2, 2]
    >>> model = MLLKMClassifier().fit(X, y).model_
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with h5py.File(f"{folder}/rows.h5", "w") as file:
    ...         file["X"] = X
    ...     summary = predict_file(model, f"{folder}/rows.h5", f"{folder}/labels.h5")
    ...     with h5py.File(f"{folder}/labels.h5") as file:
    ...         labels = file["prediction"][:].tolist()
    >>> labels, summary.counts
    ([1, 1, 2, 2], (2, 2))
    """
    origin, goal = Path(source).absolute(), Path(target).absolute()
    if goal.suffix.lower() not in (".h5", ".hdf5"):
        raise ParameterError(f"{goal.name} is to be an HDF5 file: name it {goal.stem}.h5")
    if goal.exists() and origin.exists() and goal.samefile(origin):
        raise ParameterError(f"{goal} is the file to be predicted: choose another name for the target")
    counts = np.zeros(len(model.classes), dtype=np.int64)
    checksum = model_checksum(model)
    with ExitStack() as stack, Dataset.open(origin, x, None) as dataset:
        model.require_features(dataset.n_features, dataset.name)
        with _PredictionWriter(goal, overwrite=overwrite) as writer:
            writer.describe(model.classes, checksum)
            passing = _pass(model, dataset, goal.parent, n_jobs, client, scores)
            for start, values in stack.enter_context(passing):
                codes = model.codes(values) if scores else values
                counts += np.bincount(codes, minlength=len(counts))
                writer.append_predictions(model.classes[codes])
                if scores:
                    writer.append("scores", values)
                if progress is not None:
                    progress(start + len(codes), dataset.n_rows)
        return PredictSummary(
            source=origin,
            target=goal,
            n_rows=dataset.n_rows,
            classes=tuple(model.classes.tolist()),
            counts=tuple(counts.tolist()),
            scores=scores,
            model_checksum=checksum,
            size_bytes=goal.stat().st_size,
        )


@contextmanager
def _pass(
    model: Model, dataset: Dataset, folder: Path, n_jobs: int | None, client: Client | None, scores: bool
) -> Iterator[Iterator[tuple[int, NDArray[Any]]]]:
    """First rows, and labels or decision functions, by threads here or by the workers of a client."""
    if client is None:
        evaluate = decide if scores else label_codes
        yield ((start, evaluate(model, Rows(X, start, dataset.name), n_jobs)) for start, X in dataset.chunks())
        return
    from mllkm_scale.cluster.enlist import enlisted

    with enlisted(client, None, folder) as crew:
        yield decision_pass(model, dataset, crew, scores=scores)


class _PredictionWriter(HDF5Writer):
    """A target of predictions, with what made them as attributes."""

    def describe(self, classes: NDArray[Any], checksum: str) -> None:
        self._file.attrs["model_checksum"] = checksum
        if classes.dtype.kind != "U":
            self._file.attrs["classes"] = classes
            return
        try:
            self._file.attrs.create("classes", classes.tolist(), dtype=h5py.string_dtype())
        except ValueError as error:
            raise DataError(
                f"a class of the model is text that HDF5 cannot hold ({error}): train with other labels"
            ) from error

    def append_predictions(self, labels: NDArray[Any]) -> None:
        if labels.dtype.kind == "U":
            self.append_labels("prediction", labels)
        else:
            self.append("prediction", labels)  # keeps the type of the classes, booleans too
