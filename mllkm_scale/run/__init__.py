"""A training run: plan, problem, machines, checkpoints, folder, progress."""

from mllkm_scale.base.events import Event, Finished, Listener, Notice, Phase, Round

__all__ = ["Event", "Finished", "Listener", "Notice", "Phase", "Round"]
