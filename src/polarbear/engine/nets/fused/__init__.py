"""Fused Triton kernels for the small ResNets."""
