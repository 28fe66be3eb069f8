"""Job files: a training run on one page of TOML, checked key by key, with all mistakes reported at once."""

from mllkm_scale.run.job.load import Job, load_job

__all__ = ["Job", "load_job"]
