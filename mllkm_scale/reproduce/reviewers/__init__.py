"""The comparisons that the paper's reviewers asked for, one per file: experiment, tables and picture."""
