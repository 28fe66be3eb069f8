"""The scan of component-wise kernels by one-dimensional sums (F4)."""
