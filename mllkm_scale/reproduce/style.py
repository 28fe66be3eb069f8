"""The style of the pictures, under the name by which the figures of the paper know it."""

from __future__ import annotations

from mllkm_scale.pictures import BLUE, GREY, ORANGE, save, styled

__all__ = ["BLUE", "GREY", "ORANGE", "save", "styled"]
