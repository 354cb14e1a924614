"""Training steps: one by one, or captured as CUDA graphs."""
