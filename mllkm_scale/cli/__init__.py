"""The command line: `mllkm demo | convert | plan | train | run | predict | evaluate | inspect`, one file a command.

The numerical modules are imported inside the commands, so that help and usage errors come at once.
"""

from mllkm_scale.cli.app import cli, main

__all__ = ["cli", "main"]
