"""What the product is compared with: two well-known patterns, and a function that does nothing."""
