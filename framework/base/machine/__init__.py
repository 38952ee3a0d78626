"""The machine: what is installed, its processes, what the system grants. Imports errors and
settings alone."""
