"""The workers of a client as the crew of a training or a prediction, with a folder for what they share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mllkm_scale.cluster.crew import DaskCrew
from mllkm_scale.cluster.exchange import exchange_folder

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["enlisted"]


@contextmanager
def enlisted(client: Client, run_dir: Path | None, scratch_dir: Path | None, **settings: Any) -> Iterator[DaskCrew]:
    """The crew, once there is a worker; `settings` are those of `DaskCrew`. Its folder is removed at the end."""
    with exchange_folder(run_dir, scratch_dir) as folder:
        crew = DaskCrew(client, folder, **settings)
        crew.wait_for_workers()
        yield crew
