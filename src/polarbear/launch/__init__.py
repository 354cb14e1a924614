"""From settings, method and data to a run: prepare, train, stop, resume, many at once."""
