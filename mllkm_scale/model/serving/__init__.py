"""One row at a time: a model laid out for compiled loops."""
