"""Listeners that show the progress of a training run."""
