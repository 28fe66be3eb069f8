"""Converters from CSV, LIBSVM, NPZ, NPY, IDX and Parquet to HDF5, one file per format."""

from mllkm_scale.data.converters.conversion import FORMATS, ConvertSummary, convert

__all__ = ["FORMATS", "ConvertSummary", "convert"]
