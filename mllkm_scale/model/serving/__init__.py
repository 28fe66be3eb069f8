"""Prediction of single rows: a model in a layout for compiled loops."""
