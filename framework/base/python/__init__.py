"""What Python itself lacks: caches with a bound, properties and locks that survive a fork, names
that are looked up on first use, and blocks without garbage collection. May import base's errors.
"""
