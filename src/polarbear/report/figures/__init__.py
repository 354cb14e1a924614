"""Figures of groups of runs."""
