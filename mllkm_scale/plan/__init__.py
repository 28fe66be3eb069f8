"""The memory plan of a training run, computed from sizes, and the settings that are compared."""
