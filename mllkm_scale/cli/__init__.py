"""The command line: `mllkm demo | convert | plan | train | run | predict | evaluate | inspect` and others, one file per
command.

Numerical modules are imported inside the commands, so that help and usage errors are fast.
"""

from mllkm_scale.cli.app import cli, main

__all__ = ["cli", "main"]
