"""The decision function and the labels of many rows, and the files they come from and go to."""
