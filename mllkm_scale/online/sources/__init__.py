"""Sources of streamed samples: data sets, CSV and JSON lines, standard input, iterators."""

from __future__ import annotations

from mllkm_scale.online.sources.csv_samples import CSVSamples
from mllkm_scale.online.sources.dataset_samples import DatasetSamples
from mllkm_scale.online.sources.json_samples import JSONSamples
from mllkm_scale.online.sources.opening import open_samples
from mllkm_scale.online.sources.samples import Chunk, IterableSamples, Samples

__all__ = ["CSVSamples", "Chunk", "DatasetSamples", "IterableSamples", "JSONSamples", "Samples", "open_samples"]
