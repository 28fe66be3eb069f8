"""Component-wise machines as additive models: tables of one-dimensional functions."""
