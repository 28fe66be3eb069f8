"""The decision function and the labels of many rows, and the files from which rows are read and to which predictions
are written."""
