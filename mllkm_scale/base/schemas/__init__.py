"""The allowed contents of headers and JSON files of this package: types, ranges and lengths of all fields, in one
place.

A file is read in three steps: `parse_json` bounds its size and depth, `conform` checks the contents against a class of
this folder, and the caller builds the object. Wrong contents are refused with the path of the field, such as
``certificate.status``. A new field needs a line here, with a default for older files.

Headers of archive files are closed: unknown fields are refused, because the format has a version. JSON files of a run
folder are open: other versions of the package may write fewer or more fields.
"""

from mllkm_scale.base.schemas.conform import MOST_JSON_BYTES, conform, conform_array, parse_json
from mllkm_scale.base.schemas.fields import Choice
from mllkm_scale.base.schemas.headers import LearningHeader, ModelHeader, PathEnd, StreamHeader, TrainingHeader
from mllkm_scale.base.schemas.run_files import EvaluationFile, PathFile, PlanFile, RunFile, Selected, SizeFile

__all__ = [
    "MOST_JSON_BYTES",
    "Choice",
    "EvaluationFile",
    "LearningHeader",
    "ModelHeader",
    "PathEnd",
    "PathFile",
    "PlanFile",
    "RunFile",
    "Selected",
    "SizeFile",
    "StreamHeader",
    "TrainingHeader",
    "conform",
    "conform_array",
    "parse_json",
]
