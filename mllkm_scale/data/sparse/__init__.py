"""Sparse rows with many columns: read as CSR blocks, and reduced to few features, without making them dense."""
