"""The foundation that all other folders may import: units, archives, files, threads, executors, events."""
