"""`python -m mllkm_scale.cli` is `mllkm`."""

from mllkm_scale.cli import main

main()
