"""What all other folders may use and what knows none of them: units, archives, files, threads, executors, events."""
