"""Readers of tables on disk or in a pipe, block by block, as Arrow arrays; pyarrow is imported when a block is read."""
