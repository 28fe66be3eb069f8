"""Print what a script needs to submit a job: the memory budget in bytes, and the run folder.

python -m mllkm_scale.run.job JOB.toml
"""

from __future__ import annotations

import sys

from mllkm_scale.errors import MLLKMError
from mllkm_scale.params import resolve
from mllkm_scale.run.job import load_job

if __name__ == "__main__":
    try:
        job = load_job(sys.argv[1])
        sys.stdout.write(f"{resolve(**job.parameters).budget_bytes} {job.run.absolute()}\n")
    except MLLKMError as error:
        sys.exit(str(error))
