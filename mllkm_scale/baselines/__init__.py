"""What the paper and its reviewers compare with: each method a scikit-learn estimator in a file of its own."""
