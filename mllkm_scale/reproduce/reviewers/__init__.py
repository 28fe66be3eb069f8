"""The comparisons that the paper's reviewers asked for, each in a file: what is run, its tables and its picture."""
