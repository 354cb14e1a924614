"""From run folders to figures, tables and a page; nothing here imports PyTorch."""
