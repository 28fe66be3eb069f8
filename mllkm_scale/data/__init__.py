"""Data on disk, read chunk by chunk, checked, scaled and projected; and converters."""

from mllkm_scale.data.checks import DataSummary, check
from mllkm_scale.data.converters import ConvertSummary, convert
from mllkm_scale.data.dataset import Dataset
from mllkm_scale.data.grid import default_chunk_rows, work_dtype
from mllkm_scale.data.labels import encode_labels
from mllkm_scale.data.preparation.prepared import prepare
from mllkm_scale.data.preparation.preprocessing import Preprocessor
from mllkm_scale.data.preparation.projection import Projection, fit_projection
from mllkm_scale.data.preparation.quantiles import Quantiles
from mllkm_scale.data.preparation.scaling import Scaling, fit_scaling

__all__ = [
    "ConvertSummary",
    "DataSummary",
    "Dataset",
    "Preprocessor",
    "Projection",
    "Quantiles",
    "Scaling",
    "check",
    "convert",
    "default_chunk_rows",
    "encode_labels",
    "fit_projection",
    "fit_scaling",
    "prepare",
    "work_dtype",
]
