"""What a machine is good for, and what is wrong with it: the checks behind `mllkm doctor`, one file a subject.

Every check is bounded in time and leaves nothing behind.
"""

from __future__ import annotations

from mllkm_scale.doctor.checkup import Checkup, examine
from mllkm_scale.doctor.findings import LEVELS, Finding

__all__ = ["LEVELS", "Checkup", "Finding", "examine"]
