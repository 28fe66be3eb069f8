"""The folder of a path: path.json, and a run folder for each model.

    path.json            the parameter of the path, the completed points, and the knee
    report.html          the picture of the path, and its table
    C=0.5/, C=1/, ...    run folders of the models
    C=0.5/end.npz        the point, and its final state, from which the next model starts

An interrupted path continues with the first incomplete point. The fingerprint of a point identifies data, parameters
and the points before it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from mllkm_scale.base.events import Event
from mllkm_scale.base.files.folders import reading, writing
from mllkm_scale.base.files.regular import read_regular
from mllkm_scale.base.schemas import MOST_JSON_BYTES, PathEnd, PathFile, conform, conform_array, parse_json
from mllkm_scale.base.wording import describe
from mllkm_scale.errors import CheckpointError, DataError, ParameterError
from mllkm_scale.mkl.certificate import Proof
from mllkm_scale.path.points import PathPoint, knee_point
from mllkm_scale.run.checked_state import StateSizes, conform_duals, require_state
from mllkm_scale.run.checkpoint import fitting, load_checkpoint, save_checkpoint
from mllkm_scale.run.folder import RunFolder
from mllkm_scale.run.history import LOGGER
from mllkm_scale.run.machines import Start
from mllkm_scale.run.strategy import state_arrays, state_from_arrays

__all__ = ["PATH", "PathFolder", "read_path"]

PATH, END = "path.json", "end.npz"


class PathFolder:
    """The files of one path, held by one process at a time.

    Raises
    ------
    ParameterError
        If the folder holds a path, and neither `resume` nor `overwrite` is set.
    CheckpointError
        If there is nothing to resume.
    """

    def __init__(self, path: Path, *, resume: bool = False, overwrite: bool = False) -> None:
        self.path, self.resume = path, resume
        there = (path / PATH).exists()
        if resume and not there:
            raise CheckpointError(f"{path} has no path to resume: train without --resume (resume=False)")
        if there and not (resume or overwrite):
            raise ParameterError(
                f"{path} already holds a path: continue it with --resume (resume=True), replace it with --overwrite"
                " (overwrite=True), or name another folder"
            )
        self.facts: dict[str, Any] = _read(path) if resume else {}
        self._held = ExitStack()

    def __enter__(self) -> Self:
        self.root = self._held.enter_context(RunFolder.create(self.path))
        return self

    def __exit__(self, *exception: object) -> None:
        self._held.close()

    def begin(self, **facts: Any) -> None:
        """Begin or continue a path; remove the files of another one."""
        if not self.resume:
            with writing(self.path):
                for end in self.path.glob(f"*/{END}"):
                    RunFolder(end.parent).clear()
                    end.unlink(missing_ok=True)
        self.facts = facts
        self.write(())

    def write(self, points: Sequence[PathPoint]) -> None:
        """Write path.json with the completed points."""
        told = [{"name": point.name} | dataclasses.asdict(point) for point in points]
        knee = {"knee": knee_point(points).name} if points else {}
        self.root.write_json(PATH, self.facts | {"points": told} | knee)

    def open_run(self, name: str, fingerprint: str) -> tuple[RunFolder, bool]:
        """The run folder of a point, and whether it has a checkpoint to continue from."""
        folder = self.path / name
        if self.resume and _belongs(RunFolder(folder).checkpoint, fingerprint):
            return RunFolder.resume(folder), True
        return RunFolder.create(folder, overwrite=True), False

    def log(self, event: Event) -> None:
        """Record events of the path itself in run.log, with those of its training runs."""
        LOGGER.info("%s", describe(event))

    def keep(self, point: PathPoint, fingerprint: str, end: Start) -> None:
        """Save the end of a point: the next point starts from it, and a resumed path skips the point."""
        arrays: dict[str, NDArray[Any]] = {}
        for k, state in enumerate(end.states):
            arrays |= state_arrays(state, f"machine{k}_")
        for k, proof in enumerate(end.proofs):
            arrays |= {f"proof{k}_dual": np.asarray(proof.dual), f"proof{k}_duals": proof.duals}
        counts = {"machines": len(end.states), "proofs": len(end.proofs)}
        header = {"point": dataclasses.asdict(point), "C": end.C} | counts
        save_checkpoint(
            self.path / point.name / END,
            fingerprint=fingerprint,
            round=end.states[0].round if end.states else 0,
            header=header,
            arrays=arrays,
        )

    def done(
        self,
        name: str,
        fingerprint: str,
        kind: type[Any],
        sizes: Sequence[StateSizes],
        require: Callable[[int, Any, Proof | None], object],
    ) -> tuple[PathPoint, Start] | None:
        """A point that was already trained, and its end; None if it has not been trained.

        `sizes` are those of each machine. `require` takes the number of a machine, its state and its proof, and raises
        a ValueError if they are impossible.

        Raises
        ------
        CheckpointError
            If the file of the point has impossible contents.
        """
        file = self.path / name / END
        if not self.resume or not _belongs(file, fingerprint):
            return None
        header, arrays = load_checkpoint(file, fingerprint, PathEnd)
        with fitting(file):
            if header["machines"] != len(sizes) or header["proofs"] not in (0, len(sizes)):
                raise ValueError(f"there are {header['machines']} machines and {header['proofs']} proofs")
            if any(header["C"] != size.box.C for size in sizes):
                raise ValueError(f"C is {header['C']:g}")
            states, proofs = [], []
            for k, size in enumerate(sizes):
                require_state(kind, arrays, f"machine{k}_", size)
                states.append(state_from_arrays(kind, arrays, f"machine{k}_"))
                if header["proofs"]:
                    dual = conform_array(arrays, f"proof{k}_dual", "f", ()).item()
                    proofs.append(Proof(dual, conform_duals(arrays, f"proof{k}_duals", size)))
                require(k, states[-1], proofs[-1] if proofs else None)
            point = _point(header["point"])
            if point.name != name:
                raise ValueError(f"it is the point {point.name}")
        return point, Start(tuple(states), header["C"], tuple(proofs))


def read_path(path: Path) -> tuple[list[PathPoint], dict[str, Any]]:
    """The points of a trained path, and the contents of path.json.

    Raises
    ------
    DataError
        If the folder holds no path, or one without points.
    """
    if not (path / PATH).exists():
        raise DataError(f"{path} holds no {PATH}: name the folder that mllkm path wrote")
    facts = _read(path)
    try:
        conform(facts, PathFile)
        points = [_point(entry) for entry in facts["points"]]
    except ValueError as error:
        raise DataError(f"{path / PATH} is damaged ({error}): train the path again with --overwrite") from error
    if not points:
        raise DataError(f"{path} has no models yet: continue with mllkm path --resume")
    return points, facts


def _read(path: Path) -> dict[str, Any]:
    with reading(path):
        text = read_regular(path / PATH, DataError, MOST_JSON_BYTES)
    try:
        facts: dict[str, Any] = parse_json(text)
        conform(facts, PathFile)
    except ValueError as error:
        raise DataError(f"{path / PATH} is damaged ({error}): train the path again with --overwrite") from error
    return facts


def _point(found: Mapping[str, Any]) -> PathPoint:
    """A checked point of path.json or end.npz; a gap that was not finite is nan."""
    values = {spec.name: found[spec.name] for spec in dataclasses.fields(PathPoint)}
    return PathPoint(**values | {"gap": float("nan") if values["gap"] is None else values["gap"]})


def _belongs(file: Path, fingerprint: str) -> bool:
    """Whether there is an intact checkpoint of this problem."""
    try:
        load_checkpoint(file, fingerprint)
    except CheckpointError:
        return False
    return True
