"""The rivals of the product: two well-known patterns, and a function that does nothing."""
