"""Prediction from file to file, block by block, whose target appears completely or not at all; and explanations of
rows."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mllkm_scale.base.arrays import Array
from mllkm_scale.base.location import URL, Location, as_location
from mllkm_scale.data.dataset import Dataset
from mllkm_scale.data.readers.options import Progress, silent
from mllkm_scale.errors import DataError, ParameterError
from mllkm_scale.model.calibration import Calibration
from mllkm_scale.model.evaluation import Evaluation, evaluate
from mllkm_scale.model.explanation import Explanation, explained
from mllkm_scale.model.files import model_checksum
from mllkm_scale.model.inference.blocks import Rows
from mllkm_scale.model.inference.decision import decide
from mllkm_scale.model.inference.decision_pass import decision_pass
from mllkm_scale.model.inference.labels import label_codes
from mllkm_scale.model.inference.row_file import PIPE, RowFile
from mllkm_scale.model.inference.targets import STANDARD_OUTPUT, PredictionTarget, prediction_target
from mllkm_scale.model.model import Model
from mllkm_scale.model.names import MatchedColumns, match_dataset

if TYPE_CHECKING:
    from mllkm_scale.cluster import Client

__all__ = ["Evaluation", "PredictSummary", "evaluate", "explain_file", "predict_file"]


@dataclass(frozen=True)
class PredictSummary:
    """What a prediction wrote; `counts` says how often each class was predicted.

    `by_name` says whether columns were matched by name. `ignored` lists the columns that are not features of the model.
    """

    source: Location
    target: Path
    n_rows: int
    classes: tuple[Any, ...]
    counts: tuple[int, ...]
    scores: bool
    model_checksum: str
    size_bytes: int
    probabilities: bool = False
    ignored: tuple[str, ...] = ()
    by_name: bool = False


def predict_file(
    model: Model,
    source: str | os.PathLike[str] | URL,
    target: str | os.PathLike[str],
    *,
    format: str | None = None,
    x: str | None = None,
    label_column: str | int | None = None,
    header: bool | None = None,
    by_position: bool = False,
    scores: bool = False,
    probabilities: bool = False,
    overwrite: bool = False,
    progress: Callable[[int, int], object] | None = None,
    n_jobs: int | None = None,
    client: Client | None = None,
) -> PredictSummary:
    """Predict the rows of a file of any size into another file.

    An HDF5 target holds the data set ``prediction``; its attributes ``classes`` and ``model_checksum`` say which model
    made it. A CSV target has the column ``prediction``. Memory is bounded by a block of the source, of about 4 MB.

    If source and model have names of features, columns are matched by name, in any order, and other columns, such as a
    label, are ignored. Columns without names are matched by position.

    Parameters
    ----------
    model : Model
        Pass ``model.direct()`` to use no tables, here and on the workers.
    source : path
        HDF5, zarr, or any format that `mllkm_scale.data.convert` reads; "-" for CSV on standard input, whose rows are
        predicted as they arrive. zarr and Parquet may be a URL that fsspec opens.
    target : path
        Ends with .h5, .hdf5, .csv or .tsv; "-" for CSV on standard output.
    format : str, optional
        Format of the source; by default its name decides, and HDF5 is assumed if the name does not say.
    x : str, optional
        HDF5, zarr and NPZ: name of the array of the samples, X by default.
    label_column : str or int, optional
        CSV, TSV and Parquet: name or position of a column that is not a feature and is ignored; none by default.
    header : bool, optional
        CSV and TSV: whether the first line holds names; detected by default.
    by_position : bool
        Match columns by position even if they have names.
    scores : bool
        Also write the decision function: the data set ``scores``, or the columns ``score_LABEL``. Two classes have one
        column, positive for the second class.
    probabilities : bool
        Also write the probability of every class: the data set ``probabilities``, or the columns ``probability_LABEL``.
    overwrite : bool
        Replace an existing target.
    progress : callable, optional
        Called as ``progress(done, total)`` after each block, in rows or bytes of the source; never for a pipe.
    n_jobs : int, optional
        Threads; -1 for one per core.
    client : distributed.Client, optional
        Its workers predict an HDF5 or zarr source, by its path; they and this process must see the folder of the
        target.

    Raises
    ------
    ClusterError
        If the workers or their scheduler are lost.
    DataError
        If the source cannot be read or does not fit the model; the message names row or line, and column. It lists
        missing features, with columns of similar names.
    ParameterError
        If the target exists, is the source, or has an unknown suffix; if an option does not fit the source; or if
        probabilities are requested from a model without a calibration.
    ScratchError
        If the target cannot be written.

    Examples
    --------
    >>> import tempfile
    >>> from mllkm_scale import MLLKMClassifier
    >>> X, y = [[0.0, 0.0], [0.0, 1.0], [3.0, 3.0], [3.0, 4.0]], [1, 1, 2, 2]
    >>> model = MLLKMClassifier().fit(X, y).model_
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "rows.csv").write_text("width,height\\n0,0.5\\n3,3.5\\n")
    ...     summary = predict_file(model, f"{folder}/rows.csv", f"{folder}/labels.csv")
    ...     labels = Path(folder, "labels.csv").read_text().split()
    >>> labels, summary.counts
    (['prediction', '1', '2'], (1, 1))
    """
    location = as_location(source)
    rows = RowFile.of(
        location if isinstance(location, URL) else _path(location), format, x, label_column, header, by_position
    )
    goal = _path(target)
    on_disk = isinstance(rows.path, Path) and rows.path.exists()
    if str(goal) != STANDARD_OUTPUT and goal.exists() and on_disk and goal.samefile(str(rows.path)):
        raise ParameterError(f"{goal} is the file to be predicted: choose another name for the target")
    if client is not None and not rows.is_dataset:
        raise ParameterError(f"workers read HDF5 and zarr, not {rows.format}: convert {rows.name} first")
    calibration = model.require_calibration() if probabilities else None
    checksum, tell = model_checksum(model), progress or silent
    with prediction_target(goal, overwrite=overwrite) as writer:
        passing = _Passing(model.machine, writer, scores, calibration, n_jobs)
        if rows.is_dataset:
            with rows.dataset() as opened:
                dataset, columns = (opened, None) if by_position else match_dataset(model.features, opened)
                passing.matched(columns)
                _, features = model.numeric(dataset, by_position=True)
                writer.describe(model.classes, checksum, scores, probabilities)
                passing.dataset(features, tell, client, goal.parent)
        else:
            writer.describe(model.classes, checksum, scores, probabilities)
            rows.walk(model.features, passing.take, tell, passing.matched, model.step)
    return PredictSummary(
        source=rows.path,
        target=goal,
        n_rows=int(passing.counts.sum()),
        classes=tuple(model.classes.tolist()),
        counts=tuple(passing.counts.tolist()),
        scores=scores,
        probabilities=probabilities,
        model_checksum=checksum,
        size_bytes=writer.size_bytes,
        ignored=() if passing.columns is None else passing.columns.ignored,
        by_name=passing.columns is not None,
    )


def explain_file(
    model: Model,
    source: str | os.PathLike[str],
    start: int,
    stop: int,
    *,
    x: str | None = None,
    label_column: str | int | None = None,
    by_position: bool = False,
) -> list[Explanation]:
    """Explain the rows `start` to `stop` of a file that `predict_file` reads; what follows them is not read.

    Raises
    ------
    DataError
        If the file cannot be read, does not fit the model, or has no such rows.

    Examples
    --------
    >>> import tempfile
    >>> from mllkm_scale import MLLKMClassifier
    >>> X, y = [[0.0, 0.0], [0.0, 1.0], [3.0, 3.0], [3.0, 4.0]], [1, 1, 2, 2]
    >>> model = MLLKMClassifier().fit(X, y).model_
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "rows.csv").write_text("width,height\\n0,0.5\\n3,3.5\\n")
    ...     found = explain_file(model, f"{folder}/rows.csv", 0, 2)
    >>> [one.label for one in found], found[0].values
    ([1, 2], ('0', '0.5'))
    """
    if not 0 <= start < stop:
        raise ParameterError(f"rows {start}:{stop}: give the first row and the one after the last, such as 0:5")
    rows = RowFile.of(_path(source), None, x, label_column, None, by_position)
    taken: list[Array] = []

    def take(block: Rows) -> None:
        first, last = max(start - block.first_row, 0), stop - block.first_row
        if first < min(last, len(block)):
            taken.append(np.array(block.X[first:last], dtype=np.float64))
        if last <= len(block):
            raise _Enough

    if rows.is_dataset:
        with rows.dataset() as opened:
            _, features = model.numeric(opened, by_position=by_position)
            if start < features.n_rows:
                taken.append(features.part(start, min(stop, features.n_rows)).astype(np.float64))
    else:
        with suppress(_Enough):
            rows.walk(model.features, take, silent, lambda columns: None, model.encoding)
    found = np.concatenate(taken) if taken else np.empty((0, model.machine.n_features_in))
    if len(found) < stop - start:
        raise DataError(
            f"{rows.name} ends before row {stop - 1} (0-based): ask for rows that it has, not {start}:{stop}"
        )
    return explained(model, found)


class _Enough(Exception):
    """All requested rows have been read."""


def _path(given: str | os.PathLike[str] | URL) -> Any:
    location = as_location(given)
    return location if isinstance(location, URL) or str(location) == PIPE else location.absolute()


class _Passing:
    """Rows on their way to the target, and how often each class was predicted so far."""

    def __init__(
        self,
        model: Model,
        writer: PredictionTarget,
        scores: bool,
        calibration: Calibration | None,
        n_jobs: int | None,
    ) -> None:
        self.counts = np.zeros(len(model.classes), dtype=np.int64)
        self._model, self._writer, self._scores, self._n_jobs = model, writer, scores, n_jobs
        self._calibration = calibration
        self._needs_scores = scores or calibration is not None
        self._evaluate = decide if self._needs_scores else label_codes
        self.columns: MatchedColumns | None = None

    def matched(self, columns: MatchedColumns | None) -> None:
        """Note which columns are the features, if names say so."""
        self.columns = columns

    def take(self, rows: Rows) -> None:
        """Predict rows, and write the predictions."""
        self.write(self._evaluate(self._model, rows, self._n_jobs))

    def write(self, values: Array) -> None:
        """Write decision functions, or labels by their positions among the classes."""
        codes = self._model.codes(values) if self._needs_scores else values
        probabilities = None if self._calibration is None else self._calibration.probabilities(values)
        self.counts += np.bincount(codes, minlength=len(self.counts))
        self._writer.append_predictions(self._model.classes[codes], values if self._scores else None, probabilities)

    def dataset(self, dataset: Dataset, progress: Progress, client: Client | None, folder: Path) -> None:
        """Predict a data set, by threads here or by the workers of a client."""
        if client is None:
            for start, X in dataset.chunks():
                self.take(Rows(X, start, dataset.name))
                progress(start + len(X), dataset.n_rows)
            return
        with self._on_workers(dataset, client, folder) as passing:
            for start, values in passing:
                self.write(values)
                progress(start + len(values), dataset.n_rows)

    @contextmanager
    def _on_workers(self, dataset: Dataset, client: Client, folder: Path) -> Iterator[Iterator[tuple[int, Array]]]:
        from mllkm_scale.cluster.executor import dask_executor

        with dask_executor(client, None, folder) as executor:
            yield decision_pass(self._model, dataset, executor, scores=self._needs_scores)
