"""Rows of many columns of which few are not zero: read as CSR blocks, and reduced to few features; never dense."""
