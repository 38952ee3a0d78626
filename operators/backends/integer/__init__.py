"""Arrays, products and convolutions of integers of 8 and 4 bits. May import the operators."""
