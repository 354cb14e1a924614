"""Tries a method out and says everything that is wrong with it."""
