"""Where pixels come from."""
