"""Networks, heads, and the model that joins them."""
