"""The PyTorch engine: it owns the loop, the optimiser, precision and devices."""
