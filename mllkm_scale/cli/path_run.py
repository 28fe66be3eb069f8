"""Runs a path from the command line: data, validation rows, cluster, progress, and the final output."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mllkm_scale.cli.group import say
from mllkm_scale.cli.output import Table, plain_table, print_json, tell
from mllkm_scale.cli.training_run import TrainingRun, open_weighted, tell_evaluation
from mllkm_scale.errors import ParameterError

if TYPE_CHECKING:
    from mllkm_scale.data import Dataset
    from mllkm_scale.path import PathPoint, PathResult

__all__ = ["PathRun", "below_option", "chosen_of", "tell_points"]

below_option = click.option(
    "--below",
    multiple=True,
    metavar="20us|100kB",
    help="Limit of the chosen model: a time per row, or a size of the file. May be given twice.",
)


@dataclass(frozen=True)
class PathRun(TrainingRun):
    """Models of several sizes; `run` is the folder of the path."""

    Cs: Sequence[float] | None = None
    kernel_counts: Sequence[float] | None = None
    byte_counts: Sequence[str] | None = None
    validation: str = "0.2"
    below: tuple[str, ...] = ()

    def execute(self, context: click.Context) -> None:
        """Train the models, draw error against cost, and print the chosen model."""
        from mllkm_scale.model import evaluate
        from mllkm_scale.path import parse_limits
        from mllkm_scale.path.report import write_path_page

        parse_limits(self.below)  # checked before hours of training
        self.require_folder()
        with self.open_data(self.run) as (dataset, held_out), self._validation(dataset) as validation:
            result = self._train_path(dataset, validation, context)
            page = write_path_page(self.run)
            chosen = chosen_of(result.points, self.below)
            if self.progress == "json":
                print_json({"event": "path", "points": result.points, "chosen": chosen.name}, indent=None)
            else:
                tell_points(result.points, chosen)
                say(f"{_why(self.below)}: {self.run / chosen.name}, {chosen.cost}\nreport: {page}")
            if held_out is not None:
                tell_evaluation(evaluate(result.model(chosen), held_out), held_out.name, self.progress)

    def require_folder(self) -> None:
        from mllkm_scale.path.folder import PathFolder

        PathFolder(self.run, resume=self.resume, overwrite=self.overwrite)

    def is_ours(self) -> bool:
        """Whether there is a path to continue."""
        from mllkm_scale.path.folder import PATH

        return (self.run / PATH).exists()

    def _train_path(self, dataset: Dataset, validation: Dataset | float, context: click.Context) -> PathResult:
        from mllkm_scale.path import train_path

        self.require_folder()
        with self.under_way(dataset, context, self) as how:
            return train_path(
                dataset,
                validation,
                Cs=self.Cs,
                kernel_counts=self.kernel_counts,
                byte_counts=self.byte_counts,
                run_dir=self.run,
                resume=self.resume,
                overwrite=self.overwrite,
                report=self.report,
                image_shape=self.image_shape,
                **how,
                **self.settings(),
            )

    @contextmanager
    def _validation(self, data: Dataset) -> Iterator[Dataset | float]:
        """The rows for measuring errors, or their share of the data."""

        try:
            share = float(self.validation)
        except ValueError:
            stored = self._like(Path(self.validation), self.run, data)
            with open_weighted(stored, self.x, self.y, self.sample_weight) as dataset:
                yield dataset
            return
        if not 0 < share < 1:
            raise ParameterError(f"--validation {self.validation}: give a share between 0 and 1, or a file")
        yield share


def chosen_of(points: Sequence[PathPoint], below: Sequence[str]) -> PathPoint:
    """The best point within limits; the knee if there are no limits."""
    from mllkm_scale.path import best_point, knee_point, parse_limits

    return best_point(points, parse_limits(below)) if below else knee_point(points)


def tell_points(points: Sequence[PathPoint], chosen: PathPoint | None = None) -> None:
    """Print the table of a path."""
    from mllkm_scale.path.report import HEADINGS, table_rows

    headings = [heading if place in (0, len(HEADINGS) - 1) else f">{heading}" for place, heading in enumerate(HEADINGS)]
    table = Table(headings, table_rows(points, chosen))
    tell(lambda: plain_table(table), lambda: [table])


def _why(below: Sequence[str]) -> str:
    return f"best below {' and '.join(below)}" if below else "knee"
