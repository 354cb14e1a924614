"""Campaigns against run folders and readers: kills, power cuts, flipped bits, mutated files.

Each is a program, ``python -m hard.kills --count 2000 --seed 1 --out build/hard``, with a short
version among the tests. ``make hard`` runs all of them at length.
"""
