"""A training as a run: plan, problem, machines, checkpoints, folder, progress."""

from mllkm_scale.run.events import Event, Finished, Listener, Notice, Phase, Round

__all__ = ["Event", "Finished", "Listener", "Notice", "Phase", "Round"]
