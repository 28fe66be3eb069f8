"""The form of a model that is asked for where its exact values are wanted: never by tables."""

from __future__ import annotations

import os

from mllkm_scale.model.model import Model
from mllkm_scale.model.tables.form import Form

__all__ = ["DirectModel"]


class DirectModel(Model):
    """A model that is always evaluated kernel by kernel; saved, it is the file of the model, and loads as one."""

    @property
    def form(self) -> Form:
        return Form(None, "the direct form was asked for")

    def direct(self) -> DirectModel:
        return self

    @staticmethod
    def load(path: str | os.PathLike[str]) -> DirectModel:
        """Read a model file for the direct form; workers that are sent this model do."""
        return Model.load(path).direct()
