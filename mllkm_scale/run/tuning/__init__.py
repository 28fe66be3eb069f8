"""The choice of settings: by machines that are trained without some rows, and tested on these."""
