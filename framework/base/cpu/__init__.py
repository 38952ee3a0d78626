"""The cores of this machine: how many are free, and the threads of everything that computes."""
