"""Runs and results, read from files and grouped."""
