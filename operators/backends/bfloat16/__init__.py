"""Products of float32 matrices by instructions for bfloat16. May import `products/`."""
