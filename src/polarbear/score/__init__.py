"""From predictions to scores: pure functions and tables."""
