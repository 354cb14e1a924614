"""From predictions to scores: pure functions and tables."""

from polarbear.score import metrics as metrics  # whose entries fill the catalogue
