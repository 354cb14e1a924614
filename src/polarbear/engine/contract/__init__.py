"""What a method is, and what it is given."""
