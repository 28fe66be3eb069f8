"""Kernels that are learned (F12): anchors, scales and a metric of the features, by stochastic gradients."""
