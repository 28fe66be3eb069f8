"""Tables: columns of numbers, categories, booleans and dates, with missing values, and what makes numbers of them.

`columns` says what a table holds, `coding` makes rows of numbers and codes of it, and `encoding`, which `fitting` fits
on training rows and a model keeps, makes rows of features of these. `frames` reads tables in memory.
"""

from mllkm_scale.data.tables.columns import Column, Columns

__all__ = ["Column", "Columns"]
