"""The tests of native functions on all processors that can be had here: see `__main__.py`."""
