"""Tables: columns of numbers, categories, booleans and dates, with missing values, and their conversion to features.

`columns` describes the columns, and `coding` converts cells to numbers and codes. `encoding` converts these to
features; `fitting` fits it on training rows, and it is part of the model. `frames` reads tables in memory.
"""

from mllkm_scale.data.tables.columns import Column, Columns

__all__ = ["Column", "Columns"]
