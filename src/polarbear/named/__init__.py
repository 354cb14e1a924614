"""Benchmarks by name: the published ones and folders of your own."""
