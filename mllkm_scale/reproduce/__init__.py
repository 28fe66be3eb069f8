"""The paper's table and figures, and the comparisons that its reviewers asked for: `mllkm reproduce`."""
