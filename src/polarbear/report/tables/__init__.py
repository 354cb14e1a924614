"""Tables of groups of runs."""
