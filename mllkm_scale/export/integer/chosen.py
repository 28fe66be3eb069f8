"""What a model was chosen for under `max_bytes`: the bits of its constants, and the bytes that they may take.

The training leaves both in the record of the model, which is text of a file: what is not a limit is none.
"""

from __future__ import annotations

from dataclasses import dataclass

from mllkm_scale.model.model import Model
from mllkm_scale.plan.device import BITS

__all__ = ["DeviceLimit", "limit_of"]


@dataclass(frozen=True)
class DeviceLimit:
    """Bits of constants, and the bytes that all of them may take."""

    bits: int
    max_bytes: int


def limit_of(model: Model) -> DeviceLimit | None:
    """The limit that a model was trained for; None if it was trained for none."""
    bits, max_bytes = (model.certificate.params.get(name) for name in ("bits", "max_bytes"))
    if type(bits) is not int or bits not in BITS or type(max_bytes) is not int or max_bytes <= 0:
        return None
    return DeviceLimit(bits, max_bytes)
